//! What a server reads of a request's headers, and how it answers upwards.

use super::{
    Deadline, RetryAttempt, RetryHeaders,
    codec::{self, Remaining},
    scope::Scope,
};
use crate::observe;
use http::{HeaderMap, Response, request::Parts};
use std::time::{Duration, Instant};

/// How a server treats what its callers say of deadlines and retries.
#[derive(Clone, Debug)]
pub(crate) struct Inbound {
    pub(crate) headers: RetryHeaders,
    /// The longest time that an inherited header can give: a peer may shorten, never lengthen.
    pub(crate) longest: Duration,
    pub(crate) reserve: Reserve,
    /// At the edge nobody is believed, and nobody is told.
    pub(crate) edge: bool,
}

impl Default for Inbound {
    fn default() -> Self {
        Self {
            headers: RetryHeaders::default(),
            longest: Duration::from_secs(10 * 60),
            reserve: Reserve::default(),
            edge: false,
        }
    }
}

/// What is kept back of the time left, for the way of the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    pub(crate) share: f64,
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

impl Default for Reserve {
    fn default() -> Self {
        Self {
            share: 0.05,
            least: Duration::from_millis(2),
            most: Duration::from_millis(50),
        }
    }
}

impl Reserve {
    fn of(self, left: Duration) -> Duration {
        left.mul_f64(self.share).max(self.least).min(self.most)
    }
}

/// One request as it was received.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) scope: Scope,
    /// Whether the caller is told when a call was given up.
    tells: bool,
}

impl Inbound {
    /// Reads a request's headers, and puts what they say into its extensions.
    ///
    /// What the server itself said, of this request or of the task, a header may shorten and not
    /// replace. At the edge it is all that counts.
    pub(crate) fn receive(&self, request: &mut Parts, now: Instant) -> Received {
        let outside = Scope::around(request);
        let (told, asked) = if self.edge {
            self.strip(&mut request.headers);
            (None, None)
        } else {
            let name = self.headers.attempt.as_ref();
            let asked = name.and_then(|name| RetryAttempt::read(&request.headers, name));
            (self.deadline(request, now), asked)
        };
        let own = request.extensions.get::<Deadline>().copied();
        let own = own.and_then(Deadline::instant);
        let task = outside.as_ref().and_then(Scope::deadline);
        let deadline = told.into_iter().chain(own).chain(task).min();
        let attempt = asked.or_else(|| outside.as_ref().and_then(Scope::attempt));
        let scope = Scope::new(deadline, attempt);
        let inherited = Inherited {
            deadline: scope.deadline().map(Deadline::at),
            attempt: scope.attempt(),
        };
        if let Some(deadline) = inherited.deadline {
            request.extensions.insert(deadline);
        }
        request.extensions.insert(inherited);
        let tells = asked.is_some();
        Received { scope, tells }
    }

    /// Removes the headers of strangers. The default ones too: whatever is read here, the next hop may
    /// read those.
    fn strip(&self, headers: &mut HeaderMap) {
        self.headers.strip(headers);
        RetryHeaders::default().strip(headers);
    }

    /// When the answer is to be on its way; now, when it is too late for that.
    fn deadline(&self, request: &Parts, now: Instant) -> Option<Instant> {
        match codec::read(&request.headers, &self.headers.deadlines) {
            Remaining::Absent => None,
            Remaining::Malformed => {
                observe::malformed_deadline();
                None
            }
            Remaining::Left(left) => {
                let left = left.min(self.longest);
                now.checked_add(left.saturating_sub(self.reserve.of(left)))
            }
        }
    }

    /// Tells the caller that a call was given up, or hides it from one who did not ask.
    pub(crate) fn tell<R>(&self, received: &Received, response: &mut Response<R>) {
        if self.edge {
            self.strip(response.headers_mut());
            return;
        }
        let Some(name) = &self.headers.exhausted else {
            return;
        };
        let failed = response.status().is_server_error();
        if !received.tells || !failed {
            response.headers_mut().remove(name);
        } else if let Some(marker) = received.scope.noted() {
            response.headers_mut().insert(name.clone(), marker.write());
        }
    }
}

/// What a request inherited from its caller.
///
/// In the request's extensions behind a [`DeadlineLayer`](crate::DeadlineLayer) or a layer
/// [for handlers](crate::RetryBudgetLayer::for_handlers). With the feature `axum` it is an extractor
/// as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    deadline: Option<Deadline>,
    attempt: Option<RetryAttempt>,
}

impl Inherited {
    /// When the answer is to be on its way: what the caller said, less a reserve, or an earlier
    /// [`Deadline`] that was in the request's extensions already.
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// Which attempt of its caller's the request is.
    pub fn attempt(&self) -> Option<RetryAttempt> {
        self.attempt
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum_core::extract::FromRequestParts<S> for Inherited {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(request: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(request.extensions.get().copied().unwrap_or_default())
    }
}
