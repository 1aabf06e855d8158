//! A call that is to go on later, and not in this process' sleep.

use super::{Call, Ended, Step};
use crate::{body::BoxError, budget::Permit, reason::StopReason};
use http_body::Body;
use std::time::{Duration, Instant};

impl<S, B> Call<S, B> {
    fn defers(&self, wait: Duration) -> bool {
        let longest = self.policy().defer_waits_over();
        longest.is_some_and(|longest| wait > longest)
    }

    /// When the retry that stands is to be sent, if that is longer away than the call is to sleep.
    pub(super) fn deferred_to(&self) -> Option<Instant> {
        let retry = self.progress.trouble.retry.as_ref()?;
        let wait = retry.send_at.saturating_duration_since(retry.decided);
        self.defers(wait).then_some(retry.send_at)
    }

    /// Checks that the call is to sleep until then.
    pub(super) fn sleeps_until(
        &mut self,
        send_at: Instant,
        now: Instant,
    ) -> Result<(), StopReason> {
        let wait = send_at.saturating_duration_since(now);
        if self.defers(wait) {
            self.progress.trouble.hint = Some((wait, now));
            return Err(StopReason::Deferred);
        }
        Ok(())
    }
}

impl<S, B> Call<S, B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Ends a call whose retry stands, with the time at which it may be sent.
    ///
    /// The retry is paid for now: whoever resumes the call sends it unasked. What becomes of it is not
    /// known here, so that it counts as one that failed.
    pub(super) fn defer<R, E: 'static>(
        &mut self,
        permit: Option<Permit>,
        send_at: Instant,
        ended: Ended<R, E>,
        now: Instant,
    ) -> Step<R, E> {
        if let Some(mut permit) = permit {
            permit.sent();
        }
        let wait = send_at.saturating_duration_since(now);
        self.progress.trouble.hint = Some((wait, now));
        self.stop(StopReason::Deferred, Some(ended), now)
    }
}
