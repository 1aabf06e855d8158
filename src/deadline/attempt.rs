use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Item, Parser};

/// The request header that says which attempt this is, of how many at most: `2;max=3`, an integer
/// item with a parameter (RFC 9651). Its presence says that whoever sent it is retrying.
pub const RETRY_ATTEMPT: HeaderName = HeaderName::from_static("x-retry-attempt");

/// Which attempt of its caller's a request is.
///
/// ```
/// use http::HeaderValue;
/// use tower_retry_budget::deadline::RetryAttempt;
///
/// let attempt = RetryAttempt::parse(&HeaderValue::from_static("2;max=3")).unwrap();
/// assert_eq!((attempt.number(), attempt.max()), (2, Some(3)));
/// assert_eq!(attempt.write(), "2;max=3");
/// assert!(RetryAttempt::parse(&HeaderValue::from_static("0;max=3")).is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAttempt {
    number: u32,
    max: Option<u32>,
}

impl RetryAttempt {
    pub(crate) const fn new(number: u32, max: u32) -> Self {
        let max = Some(max);
        Self { number, max }
    }

    /// The number of the attempt; 1 is the first.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// How many attempts there may be at most.
    pub const fn max(self) -> Option<u32> {
        self.max
    }

    /// Whether the request is itself a retry.
    pub const fn is_retry(self) -> bool {
        self.number >= 2
    }

    /// Whether whoever sent the request retries it.
    pub(crate) fn is_owned(self) -> bool {
        self.is_retry() || self.max.is_some_and(|max| max >= 2)
    }

    /// Writes the value of the header.
    ///
    /// # Panics
    ///
    /// Never: digits and ASCII punctuation are a valid header value.
    pub fn write(self) -> HeaderValue {
        if let Some(usual) = self.usual() {
            return HeaderValue::from_static(usual);
        }
        let number = self.number;
        let written = match self.max {
            Some(max) => HeaderValue::try_from(format!("{number};max={max}")),
            None => Ok(number.into()),
        };
        written.expect("digits and ASCII punctuation are a valid header value")
    }

    /// The value, where it is one of the few that nearly all requests have.
    fn usual(self) -> Option<&'static str> {
        Some(match (self.number, self.max?) {
            (1, 1) => "1;max=1",
            (1, 2) => "1;max=2",
            (1, 3) => "1;max=3",
            (1, 4) => "1;max=4",
            (1, 5) => "1;max=5",
            (2, 3) => "2;max=3",
            (3, 3) => "3;max=3",
            _ => return None,
        })
    }

    /// Reads the value of the header; `None` when it is malformed.
    ///
    /// A number over `u32::MAX` is read as that. Parameters that are not known are passed over, and
    /// so is a `max` that is no positive integer.
    pub fn parse(value: &HeaderValue) -> Option<Self> {
        let item: Item = Parser::new(value.as_bytes()).parse().ok()?;
        let number = positive(&item.bare_item)?;
        let max = item.params.get("max").and_then(positive);
        Some(Self { number, max })
    }

    /// Reads the header of a request. Of several lines the one that leaves least to retry counts.
    pub(super) fn read(headers: &HeaderMap, name: &HeaderName) -> Option<Self> {
        let lines = headers.get_all(name).iter();
        lines
            .filter_map(Self::parse)
            .max_by_key(|attempt| (attempt.is_retry(), attempt.max, attempt.number))
    }
}

fn positive(item: &BareItem) -> Option<u32> {
    let BareItem::Integer(number) = item else {
        return None;
    };
    let number = u64::try_from(i64::from(*number)).ok()?;
    (number > 0).then(|| u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Option<RetryAttempt> {
        RetryAttempt::parse(&HeaderValue::try_from(text).expect("a valid value"))
    }

    #[test]
    fn reads_an_item_with_its_parameter() {
        assert_eq!(parse("2;max=3"), Some(RetryAttempt::new(2, 3)));
        let alone = parse("1").expect("a valid item");
        assert_eq!(
            (alone.number(), alone.max(), alone.is_owned()),
            (1, None, false)
        );
        assert!(parse("1;max=2").is_some_and(RetryAttempt::is_owned));
        assert!(parse("2").is_some_and(RetryAttempt::is_owned));
        assert!(!parse("1;max=1").is_some_and(RetryAttempt::is_owned));
        assert_eq!(parse("1;x=y;max=2"), Some(RetryAttempt::new(1, 2)));
        assert_eq!(parse("1;max=-2").map(RetryAttempt::max), Some(None));
        assert_eq!(parse("999999999999999"), parse("4294967295"));
    }

    #[test]
    fn reads_nothing_else() {
        for malformed in [
            "", "0", "-1", "+1", "1e3", "1.0", "two", "\"2\"", "2, 3", "2;", "2;max=",
        ] {
            assert_eq!(parse(malformed), None, "{malformed:?}");
        }
        assert_eq!(parse(&"1".repeat(10_000)), None);
    }

    #[test]
    fn takes_the_line_that_leaves_least_to_retry() {
        let mut headers = HeaderMap::new();
        for line in ["junk", "1;max=1", "3;max=3", "1;max=9"] {
            headers.append(RETRY_ATTEMPT, HeaderValue::from_static(line));
        }
        assert_eq!(
            RetryAttempt::read(&headers, &RETRY_ATTEMPT),
            Some(RetryAttempt::new(3, 3))
        );
    }

    proptest! {
        #[test]
        fn reads_what_it_usually_writes(number in 1_u32..7, max in proptest::option::of(1_u32..7)) {
            let attempt = RetryAttempt { number, max };
            prop_assert_eq!(RetryAttempt::parse(&attempt.write()), Some(attempt));
        }

        #[test]
        fn reads_what_it_writes(number in 1_u32.., max in proptest::option::of(1_u32..)) {
            let attempt = RetryAttempt { number, max };
            prop_assert_eq!(RetryAttempt::parse(&attempt.write()), Some(attempt));
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let _ = RetryAttempt::parse(&value);
            }
        }
    }
}
