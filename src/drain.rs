use bytes::Buf;
use http_body::Body;
use pin_project_lite::pin_project;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

/// The most that is read of a failed response. A longer body costs more than a new connection.
const MOST: u64 = 64 * 1024;

/// The longest that its reading may take.
pub(crate) const LONGEST: Duration = Duration::from_millis(50);

pin_project! {
    /// Reads the body of a failed response to its end, so that an HTTP/1.1 connection can be used
    /// again, unless that is more than it is worth.
    pub(crate) struct Drain<R> {
        #[pin]
        body: R,
        left: u64,
        until: Option<Instant>,
    }
}

impl<R: Body> Drain<R> {
    /// `None` when there is nothing to read, or clearly too much.
    pub(crate) fn new(body: R, until: Option<Instant>) -> Option<Self> {
        let worth_it = !body.is_end_stream() && body.size_hint().lower() <= MOST;
        worth_it.then_some(Self {
            body,
            left: MOST,
            until,
        })
    }

    /// When to stop trying.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ready when the body has ended or is given up.
    pub(crate) fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        while !this.body.is_end_stream() {
            let Some(Ok(frame)) = ready!(this.body.as_mut().poll_frame(cx)) else {
                break;
            };
            // A frame without data costs too: there may be no end of them.
            let cost = frame.data_ref().map_or(0, Buf::remaining).max(1);
            match this.left.checked_sub(cost as u64) {
                Some(left) => *this.left = left,
                None => break,
            }
        }
        Poll::Ready(())
    }
}
