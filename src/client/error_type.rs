//! Sees an error value of any type as a `dyn Error`, when its type is one that is known.
//!
//! The layer asks nothing of the inner service's error but `'static`, so that it mounts over
//! `Infallible` and over enums that are no `std::error::Error`. Which of them are errors is found out
//! at run time.

use std::{any::Any, error::Error, sync::Arc};

/// A boxed error: the same type as `tower::BoxError` and `axum::BoxError`.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An error kept for whoever reads the details of an exhausted call.
pub(crate) type KeptError = Arc<dyn Error + Send + Sync>;

/// How to see, and how to keep, values of one error type.
#[derive(Clone, Copy)]
pub(crate) struct ErrorType {
    view: fn(&dyn Any) -> Option<&(dyn Error + 'static)>,
    /// Takes the value out of an `Option<E>`.
    keep: fn(&mut dyn Any) -> Option<KeptError>,
}

impl ErrorType {
    pub(crate) const fn of<E: Error + Send + Sync + 'static>() -> Self {
        Self {
            view: |any| any.downcast_ref::<E>().map(|error| error as _),
            keep: |slot| take::<E>(slot).map(|error| Arc::new(error) as _),
        }
    }
}

const KNOWN: &[ErrorType] = &[
    ErrorType {
        view: |any| any.downcast_ref::<BoxError>().map(|error| &**error as _),
        keep: |slot| take::<BoxError>(slot).map(Arc::from),
    },
    ErrorType {
        view: |any| any.downcast_ref::<KeptError>().map(|error| &**error as _),
        keep: |slot| take::<KeptError>(slot),
    },
    ErrorType {
        view: |any| any.downcast_ref::<Box<dyn Error>>().map(|error| &**error),
        // Not `Send`, so it cannot travel in a response's extensions.
        keep: |_| None,
    },
    ErrorType::of::<hyper_util::client::legacy::Error>(),
    ErrorType::of::<hyper::Error>(),
    ErrorType::of::<std::io::Error>(),
    ErrorType::of::<tower::timeout::error::Elapsed>(),
    ErrorType::of::<tower::load_shed::error::Overloaded>(),
    ErrorType::of::<tower::buffer::error::Closed>(),
    ErrorType::of::<tokio::time::error::Elapsed>(),
    #[cfg(feature = "http2")]
    ErrorType::of::<h2::Error>(),
    #[cfg(feature = "reqwest")]
    ErrorType {
        view: |any| {
            any.downcast_ref::<::reqwest::Error>()
                .map(|error| error as _)
        },
        // What is kept is logged, and a query string must not be.
        keep: |slot| {
            let error = take::<::reqwest::Error>(slot)?;
            Some(Arc::new(error.without_url()))
        },
    },
];

/// Sees `value` as an error, if its type is a known one or one of `more`. Says whether it is one of
/// those: then somebody vouches for it.
pub(crate) fn as_error<'a>(
    value: &'a dyn Any,
    more: &[ErrorType],
) -> Option<(&'a (dyn Error + 'static), bool)> {
    let known = KNOWN.iter().map(|known| (known, false));
    let vouched = more.iter().map(|known| (known, true));
    known
        .chain(vouched)
        .find_map(|(known, vouched)| Some(((known.view)(value)?, vouched)))
}

/// Keeps `value` if it is an error of a known type or of one of `more`.
pub(crate) fn keep_error<E: 'static>(value: E, more: &[ErrorType]) -> Option<KeptError> {
    let mut slot = Some(value);
    KNOWN
        .iter()
        .chain(more)
        .find_map(|known| (known.keep)(&mut slot))
}

fn take<E: 'static>(slot: &mut dyn Any) -> Option<E> {
    slot.downcast_mut::<Option<E>>().and_then(Option::take)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{convert::Infallible, fmt, io};

    #[derive(Debug)]
    struct Mine;

    impl fmt::Display for Mine {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("mine")
        }
    }

    impl Error for Mine {}

    #[test]
    fn sees_through_boxes_to_the_error_inside() {
        let boxed: BoxError = io::Error::from(io::ErrorKind::TimedOut).into();
        assert!(as_error(&boxed, &[]).is_some_and(|(error, _)| error.is::<io::Error>()));
        let local: Box<dyn Error> = Box::new(Mine);
        assert!(as_error(&local, &[]).is_some_and(|(error, _)| error.is::<Mine>()));
    }

    #[test]
    fn keeps_a_known_error_and_lets_go_of_an_unknown_one() {
        let kept = keep_error(io::Error::other("gone"), &[]).expect("io errors are known");
        assert_eq!(kept.to_string(), "gone");
        let boxed: BoxError = Box::new(Mine);
        assert!(keep_error(boxed, &[]).is_some());
        assert!(keep_error(Mine, &[]).is_none());
        assert!(keep_error(7_u8, &[]).is_none());
        assert!(keep_error(None::<Infallible>, &[]).is_none());
    }

    #[test]
    fn knows_a_registered_type() {
        let more = [ErrorType::of::<Mine>()];
        assert!(as_error(&Mine, &more).is_some_and(|(_, vouched)| vouched));
        assert!(keep_error(Mine, &more).is_some());
    }
}
