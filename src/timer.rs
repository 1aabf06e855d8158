use crate::clock;
use pin_project_lite::pin_project;
use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use tokio::{
    task::unconstrained,
    time::{Sleep, sleep_until},
};

/// The longest that tokio is asked to sleep in one piece. Older versions lose their way, or panic,
/// over a sleep of centuries.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

pin_project! {
    /// The one timer of a call, armed for whatever the call waits for. There is none until
    /// something is pending.
    #[derive(Default)]
    pub(crate) struct Timer {
        #[pin]
        sleep: Option<Sleep>,
        until: Option<Instant>,
    }
}

impl Timer {
    /// Waits until `at`; for ever when that is `None`. What has passed already needs no timer.
    pub(crate) fn poll_at(
        mut self: Pin<&mut Self>,
        at: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let Some(at) = at else {
            return Poll::Pending;
        };
        loop {
            if self.until != Some(at) {
                let now = clock::now();
                if at <= now {
                    return Poll::Ready(());
                }
                self.as_mut().arm(at, now);
            }
            let Some(sleep) = self.as_mut().project().sleep.as_pin_mut() else {
                return Poll::Pending;
            };
            let armed = sleep.deadline().into_std();
            // An inner service that has used up what tokio lets a task do in one go must not keep its
            // own time-out from firing.
            ready!(pin!(unconstrained(sleep)).poll(cx));
            if armed >= at {
                return Poll::Ready(());
            }
            // A piece of it has passed.
            *self.as_mut().project().until = None;
        }
    }

    fn arm(self: Pin<&mut Self>, at: Instant, now: Instant) {
        let mut this = self.project();
        let longest = now.checked_add(LONGEST);
        let piece = longest.map_or(at, |longest| longest.min(at)).into();
        match this.sleep.as_mut().as_pin_mut() {
            Some(sleep) => sleep.reset(piece),
            None => this.sleep.set(Some(sleep_until(piece))),
        }
        *this.until = Some(at);
    }
}
