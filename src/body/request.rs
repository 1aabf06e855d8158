use super::{
    BoxError, ReplayMemory,
    error::{Incomplete, Superseded},
    gate::Gate,
    handle::Handle,
    into_bytes,
};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;
use std::{
    any::Any,
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// The largest body of unknown origin that is read ahead, when it need not be kept, to see whether
/// it is one piece: the default replay limit, so that both cases look alike from outside.
const EAGER: usize = 64 * 1024;

pin_project! {
    /// The request body that the inner service receives.
    ///
    /// It is one attempt's view of the caller's body `B`: its data as [`Bytes`], its trailers, its
    /// length when it has an exact one, its errors as [`BoxError`]. When a retry is decided on, the
    /// bodies of earlier attempts fail with [`Superseded`].
    ///
    /// It is `Unpin` and `Sync` only when `B` is. It holds no lock between two polls.
    pub struct ReplayBody<B> {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[project = InnerProj]
    enum Inner<B> {
        // Nothing is kept: the body passes through, until its gate closes when it has one.
        Direct {
            #[pin]
            body: B,
            gate: Option<Gate>,
        },
        // There is nothing to send, or nothing more.
        Empty,
        // It failed, and goes on failing: what was sent of it must not pass for whole.
        Failed,
        // What is read is kept in a cell that all attempts share.
        Buffered {
            handle: Handle<B>,
        },
    }
}

impl<B> ReplayBody<B> {
    /// A body that passes through: it allocates nothing and keeps nothing.
    pub(crate) fn direct(body: B) -> Self {
        Inner::Direct { body, gate: None }.into()
    }

    /// A body that passes through until `gate` closes.
    pub(super) fn gated(body: B, gate: Option<Gate>) -> Self {
        Inner::Direct { body, gate }.into()
    }

    pub(super) fn buffered(handle: Handle<B>) -> Self {
        Inner::Buffered { handle }.into()
    }
}

impl<B> ReplayBody<B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Takes the whole body, when all of it can be had now, in one piece and without trailers.
    ///
    /// It then counts as sent by this attempt. Otherwise nothing is lost: whatever was read to find
    /// out is the next frame. For clients that treat a body in memory better than a stream.
    #[cfg_attr(not(feature = "reqwest"), allow(dead_code))]
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        if let Inner::Direct { body, gate } = &mut self.inner {
            if let Some(whole) = take_in_memory(body) {
                return Some(whole);
            }
            if body.is_end_stream() {
                return Some(Bytes::new());
            }
            let len = body.size_hint().exact()?;
            if gate.is_some() || len > EAGER as u64 {
                return None;
            }
            // Only a cell can put back what turns out not to be all. This one keeps nothing.
            let Inner::Direct { body, .. } = mem::replace(&mut self.inner, Inner::Empty) else {
                return None;
            };
            let handle = Handle::new(body, 0, &ReplayMemory::new(0));
            handle.shared().release();
            self.inner = Inner::Buffered { handle };
        }
        match &mut self.inner {
            Inner::Buffered { handle } => handle.take_whole(EAGER, is_in_memory),
            Inner::Empty => Some(Bytes::new()),
            Inner::Direct { .. } | Inner::Failed => None,
        }
    }
}

impl<B> Body for ReplayBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut inner = self.project().inner;
        let polled = match inner.as_mut().project() {
            InnerProj::Direct { body, gate } => match gate {
                Some(gate) if !gate.is_open(cx) => Poll::Ready(Some(Err(Superseded.into()))),
                gate => {
                    let next = body.poll_frame(cx);
                    if let (Some(gate), Poll::Ready(Some(Err(_)))) = (gate, &next) {
                        gate.fail();
                    }
                    return next
                        .map(|next| next.map(|next| next.map(into_bytes).map_err(Into::into)));
                }
            },
            InnerProj::Empty => return Poll::Ready(None),
            InnerProj::Failed => return Poll::Ready(Some(Err(Incomplete.into()))),
            InnerProj::Buffered { handle } => handle.poll_frame(cx),
        };
        // Over, one way or the other: whatever it holds is let go of now, not when the connection
        // gets round to it.
        match polled {
            Poll::Ready(None) => inner.set(Inner::Empty),
            Poll::Ready(Some(Err(_))) => inner.set(Inner::Failed),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Direct { body, .. } => body.is_end_stream(),
            Inner::Empty => true,
            Inner::Failed => false,
            Inner::Buffered { handle } => handle.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Direct { body, .. } => body.size_hint(),
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Failed => SizeHint::default(),
            Inner::Buffered { handle } => handle.size_hint(),
        }
    }
}

impl<B> From<Inner<B>> for ReplayBody<B> {
    fn from(inner: Inner<B>) -> Self {
        Self { inner }
    }
}

impl<B> Default for ReplayBody<B> {
    /// An empty body.
    fn default() -> Self {
        Inner::Empty.into()
    }
}

impl<B> fmt::Debug for ReplayBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.inner {
            Inner::Direct { .. } => "ReplayBody::Direct(..)",
            Inner::Empty => "ReplayBody::Empty",
            Inner::Failed => "ReplayBody::Failed",
            Inner::Buffered { .. } => "ReplayBody::Buffered(..)",
        })
    }
}

/// Whether a body that was not read yet gives all that it has in one frame, at once.
fn is_in_memory<B: 'static>(body: &B) -> bool {
    let body: &dyn Any = body;
    #[cfg(feature = "reqwest")]
    if let Some(body) = body.downcast_ref::<reqwest::Body>() {
        return body.as_bytes().is_some();
    }
    body.is::<Full<Bytes>>()
}

/// Takes the one frame of a body that is known to have no more than one.
fn take_in_memory<B: 'static>(body: &mut B) -> Option<Bytes> {
    if !is_in_memory(body) {
        return None;
    }
    let body: &mut dyn Any = body;
    #[cfg(feature = "reqwest")]
    if let Some(body) = body.downcast_mut::<reqwest::Body>() {
        return take_frame(body);
    }
    body.downcast_mut::<Full<Bytes>>().and_then(take_frame)
}

fn take_frame<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Option<Bytes> {
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
        Poll::Ready(None) => Some(Bytes::new()),
        _ => None,
    }
}
