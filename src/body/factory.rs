use super::BoxError;
use std::{
    any::{Any, type_name},
    fmt,
    sync::Arc,
};

/// Makes the body of a request again for each retry.
///
/// For bodies that are too large to keep, such as files: insert one into the request's extensions,
/// and nothing of the body is kept in memory. The first attempt sends the body of the request
/// itself; the factory is called when a retry is decided on, before a budget is asked, so that a
/// failure (the file is gone) ends the call with the outcome in hand.
///
/// The body must be the same each time: same bytes, same length, same trailers. Nobody checks.
/// Its type must be the `B` of the `Request<B>` that the layer is called with; a factory of another
/// type is not used, and the body is kept as usual, which an event at debug level says.
///
/// # Panics
///
/// The closure runs inside the call's future, so it should neither block for long nor panic.
///
/// # Example
///
/// A file is opened for each attempt, and read as it is sent:
///
/// ```
/// use bytes::Bytes;
/// use http_body::{Body, Frame, SizeHint};
/// use std::{fs::File, io, path::PathBuf, pin::Pin, task::{Context, Poll, ready}};
/// use tokio::io::{AsyncRead, ReadBuf};
/// use tower_retry_budget::body::BodyFactory;
///
/// struct FileBody {
///     file: tokio::fs::File,
///     left: u64,
/// }
///
/// impl FileBody {
///     fn open(path: &PathBuf) -> io::Result<Self> {
///         let file = File::open(path)?;
///         let left = file.metadata()?.len();
///         Ok(Self { file: file.into(), left })
///     }
/// }
///
/// impl Body for FileBody {
///     // ...
/// #   type Data = Bytes;
/// #   type Error = io::Error;
/// #
/// #   fn poll_frame(
/// #       mut self: Pin<&mut Self>,
/// #       cx: &mut Context<'_>,
/// #   ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
/// #       let mut chunk = [0; 16 * 1024];
/// #       let mut chunk = ReadBuf::new(&mut chunk);
/// #       ready!(Pin::new(&mut self.file).poll_read(cx, &mut chunk))?;
/// #       let read = chunk.filled();
/// #       self.left = self.left.saturating_sub(read.len() as u64);
/// #       let frame = Frame::data(Bytes::copy_from_slice(read));
/// #       Poll::Ready((!read.is_empty()).then_some(Ok(frame)))
/// #   }
/// #
/// #   fn size_hint(&self) -> SizeHint {
/// #       SizeHint::with_exact(self.left)
/// #   }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let path = std::env::temp_dir().join(format!("body-factory-{}", std::process::id()));
/// # std::fs::write(&path, "a large file")?;
/// let mut request = http::Request::put("http://store/backup").body(FileBody::open(&path)?)?;
/// request
///     .extensions_mut()
///     .insert(BodyFactory::new(move || FileBody::open(&path)));
/// # assert_eq!(request.body().size_hint().exact(), Some(12));
/// # assert!(request.extensions().get::<BodyFactory>().is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct BodyFactory {
    /// A `Make<B>`, its type erased: extensions are looked up by type, and `B` is the request's.
    make: Arc<dyn Any + Send + Sync>,
    body: &'static str,
}

/// The closure of a factory for bodies of type `B`.
pub(super) struct Make<B>(Box<dyn Fn() -> Result<B, BoxError> + Send + Sync>);

impl BodyFactory {
    /// Creates a factory of bodies of type `B` from a closure that makes one.
    pub fn new<B, E>(make: impl Fn() -> Result<B, E> + Send + Sync + 'static) -> Self
    where
        B: 'static,
        E: Into<BoxError>,
    {
        Self {
            make: Arc::new(Make::<B>(Box::new(move || make().map_err(Into::into)))),
            body: type_name::<B>(),
        }
    }

    /// The closure, if it makes bodies of type `B`.
    pub(super) fn downcast<B: 'static>(self) -> Option<Arc<Make<B>>> {
        let make = self.make.downcast().ok();
        if make.is_none() {
            tracing::debug!(
                factory = self.body,
                request = type_name::<B>(),
                "the body factory makes another type of body than the request has; not used"
            );
        }
        make
    }
}

impl<B> Make<B> {
    /// Makes one, or says why not.
    pub(super) fn call(&self) -> Option<B> {
        (self.0)()
            .inspect_err(|error| tracing::debug!(%error, "the body factory failed"))
            .ok()
    }
}

impl fmt::Debug for BodyFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyFactory")
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}
