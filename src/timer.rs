use pin_project_lite::pin_project;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};
use tokio::time::{Sleep, sleep_until};

pin_project! {
    /// The one timer of a call, armed for whatever the call waits for. There is none until
    /// something is pending.
    #[derive(Default)]
    pub(crate) struct Timer {
        #[pin]
        sleep: Option<Sleep>,
    }
}

impl Timer {
    /// Waits until `at`; for ever when that is `None`.
    pub(crate) fn poll_at(
        self: Pin<&mut Self>,
        at: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let Some(at) = at.map(tokio::time::Instant::from_std) else {
            return Poll::Pending;
        };
        let mut sleep = self.project().sleep;
        match sleep.as_mut().as_pin_mut() {
            Some(armed) if armed.deadline() == at => {}
            Some(armed) => armed.reset(at),
            None => sleep.set(Some(sleep_until(at))),
        }
        match sleep.as_pin_mut() {
            Some(sleep) => sleep.poll(cx),
            None => Poll::Pending,
        }
    }
}
