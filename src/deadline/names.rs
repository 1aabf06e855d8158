use super::{
    DEADLINE_REMAINING_MS, DeadlineHeader, LEAST_REMAINING, Marker, RETRY_ATTEMPT, RETRY_EXHAUSTED,
    RetryAttempt,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::{borrow::Cow, time::Duration};

/// The headers by which services tell each other of deadlines and retries.
///
/// All services of a chain use the same. The default is `x-deadline-remaining-ms`,
/// `x-retry-attempt` and `x-retry-exhausted`.
///
/// ```
/// use tower_retry_budget::{RetryBudgetLayer, deadline::{DeadlineHeader, RetryHeaders}};
///
/// // Beside gRPC services and Envoy.
/// let headers = RetryHeaders::default().deadlines([
///     DeadlineHeader::default(),
///     DeadlineHeader::grpc_timeout(),
///     DeadlineHeader::envoy(),
/// ]);
/// let layer = RetryBudgetLayer::new().headers(headers);
/// # let _ = layer;
/// ```
#[derive(Clone, Debug)]
pub struct RetryHeaders {
    pub(super) deadlines: Cow<'static, [DeadlineHeader]>,
    pub(super) attempt: Option<HeaderName>,
    pub(super) exhausted: Option<HeaderName>,
}

static DEADLINES: [DeadlineHeader; 1] = [DeadlineHeader::millis(DEADLINE_REMAINING_MS)];

impl Default for RetryHeaders {
    fn default() -> Self {
        Self {
            deadlines: Cow::Borrowed(&DEADLINES),
            attempt: Some(RETRY_ATTEMPT),
            exhausted: Some(RETRY_EXHAUSTED),
        }
    }
}

impl RetryHeaders {
    /// None of them: nothing is told, and nothing is believed.
    pub const fn none() -> Self {
        Self {
            deadlines: Cow::Borrowed(&[]),
            attempt: None,
            exhausted: None,
        }
    }

    /// Sets the headers that carry the time left. All of them are written, and of all that are read
    /// the shortest time counts.
    #[must_use]
    pub fn deadlines(mut self, headers: impl IntoIterator<Item = DeadlineHeader>) -> Self {
        self.deadlines = headers.into_iter().collect();
        self
    }

    /// Sets the header that says which attempt a request is, `None` for none.
    #[must_use]
    pub fn attempt(mut self, name: impl Into<Option<HeaderName>>) -> Self {
        self.attempt = name.into();
        self
    }

    /// Sets the header that says that a call was given up, `None` for none.
    #[must_use]
    pub fn exhausted(mut self, name: impl Into<Option<HeaderName>>) -> Self {
        self.exhausted = name.into();
        self
    }

    /// Writes the headers of an attempt at the moment of sending. Whatever stood in them before is
    /// overwritten or removed: it was written for another hop.
    ///
    /// `left` is what is left for this attempt, `None` without a limit.
    pub(crate) fn stamp(
        &self,
        headers: &mut HeaderMap,
        left: Option<Duration>,
        ownership: Ownership,
    ) {
        debug_assert!(left.is_none_or(|left| left >= LEAST_REMAINING));
        for deadline in &*self.deadlines {
            let value = left.and_then(|left| deadline.write(left));
            put(headers, deadline.name(), value);
        }
        if let Some(name) = &self.attempt {
            match ownership {
                Ownership::Told => {}
                Ownership::Nobody => put(headers, name, None),
                Ownership::Attempt(attempt) => put(headers, name, Some(attempt.write())),
            }
        }
    }

    /// Reads whether the response's sender gave up on a call.
    pub(crate) fn marker(&self, response: &HeaderMap) -> Option<Marker> {
        Marker::read(response, self.exhausted.as_ref()?)
    }

    /// Removes all of them.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        for deadline in &*self.deadlines {
            headers.remove(deadline.name());
        }
        for name in self.attempt.iter().chain(&self.exhausted) {
            headers.remove(name);
        }
    }
}

/// What a request says of who retries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Nobody does.
    Nobody,
    /// A layer outside in this stack has said so already.
    Told,
    /// This layer, or the caller of the request being served.
    Attempt(RetryAttempt),
}

fn put(headers: &mut HeaderMap, name: &HeaderName, value: Option<HeaderValue>) {
    match value {
        Some(value) => _ = headers.insert(name.clone(), value),
        None => _ = headers.remove(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Ownership = Ownership::Attempt(RetryAttempt::new(1, 3));

    #[test]
    fn rounds_the_time_left_down() {
        let mut headers = HeaderMap::new();
        let names = RetryHeaders::default();
        names.stamp(&mut headers, Some(Duration::from_micros(1_999)), FIRST);
        assert_eq!(headers[DEADLINE_REMAINING_MS], "1");
        assert_eq!(headers[RETRY_ATTEMPT], "1;max=3");
        names.stamp(&mut headers, Some(Duration::MAX), FIRST);
        assert_eq!(headers[DEADLINE_REMAINING_MS], u64::MAX.to_string());
    }

    #[test]
    fn leaves_nothing_of_what_another_hop_wrote() {
        let mut headers = HeaderMap::new();
        headers.append(RETRY_ATTEMPT, HeaderValue::from_static("7;max=9"));
        headers.append(RETRY_ATTEMPT, HeaderValue::from_static("8;max=9"));
        headers.append(DEADLINE_REMAINING_MS, HeaderValue::from_static("99999"));
        let names = RetryHeaders::default();
        let mut told = headers.clone();
        names.stamp(&mut told, None, Ownership::Told);
        assert_eq!(told.get_all(RETRY_ATTEMPT).iter().count(), 2);
        let mut retried = headers.clone();
        names.stamp(&mut retried, Some(LEAST_REMAINING), FIRST);
        let values: Vec<_> = retried.get_all(RETRY_ATTEMPT).iter().collect();
        assert_eq!(values, ["1;max=3"]);
        assert_eq!(retried[DEADLINE_REMAINING_MS], "1");
        names.stamp(&mut headers, None, Ownership::Nobody);
        assert!(headers.is_empty());
    }

    #[test]
    fn touches_nothing_that_is_switched_off() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_ATTEMPT, HeaderValue::from_static("mine"));
        RetryHeaders::none().stamp(&mut headers, Some(LEAST_REMAINING), FIRST);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[RETRY_ATTEMPT], "mine");
    }

    #[test]
    fn writes_all_the_deadlines_it_is_given() {
        let names = RetryHeaders::default();
        let names = names.deadlines([DeadlineHeader::envoy(), DeadlineHeader::grpc_timeout()]);
        let mut headers = HeaderMap::new();
        names.stamp(&mut headers, Some(Duration::from_millis(20)), FIRST);
        assert_eq!(headers["x-envoy-expected-rq-timeout-ms"], "20");
        assert_eq!(headers["grpc-timeout"], "20000000n");
        names.strip(&mut headers);
        assert!(headers.is_empty());
    }
}
