use super::LEAST_REMAINING;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

/// The request header that says how many whole milliseconds are left for this attempt.
pub const DEADLINE_REMAINING_MS: HeaderName = HeaderName::from_static("x-deadline-remaining-ms");

/// The request header that says which attempt this is, of how many at most: `2;max=3`, an item with a
/// parameter (RFC 9651). Its presence says that whoever sent it is retrying.
pub const RETRY_ATTEMPT: HeaderName = HeaderName::from_static("x-retry-attempt");

/// Writes the headers that tell the next hop what it may count on, at the moment of sending.
///
/// Whatever stood in them before is overwritten or removed: it was written for another hop.
#[derive(Clone, Debug)]
pub(crate) struct StampHeaders {
    pub(crate) deadline: bool,
    pub(crate) attempt: bool,
}

impl StampHeaders {
    /// `remaining` is what is left for this attempt, `None` without a limit; `attempt` its number and
    /// the highest number, `None` when the call is not one that retries.
    pub(crate) fn stamp(
        &self,
        headers: &mut HeaderMap,
        remaining: Option<Duration>,
        attempt: Option<(u32, u32)>,
    ) {
        if self.deadline {
            put(headers, DEADLINE_REMAINING_MS, remaining.map(whole_millis));
        }
        if self.attempt {
            put(headers, RETRY_ATTEMPT, attempt.map(attempt_value));
        }
    }
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    match value {
        Some(value) => _ = headers.insert(name, value),
        None => _ = headers.remove(name),
    }
}

/// Rounds down, so that the next hop never believes that it has more than there is.
fn whole_millis(remaining: Duration) -> HeaderValue {
    debug_assert!(
        remaining >= LEAST_REMAINING,
        "an expired request is not sent"
    );
    HeaderValue::from(u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX))
}

fn attempt_value((number, max): (u32, u32)) -> HeaderValue {
    HeaderValue::try_from(format!("{number};max={max}")).expect("digits and ASCII punctuation")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: StampHeaders = StampHeaders {
        deadline: true,
        attempt: true,
    };

    #[test]
    fn rounds_the_remaining_time_down() {
        let mut headers = HeaderMap::new();
        BOTH.stamp(&mut headers, Some(Duration::from_micros(1_999)), None);
        assert_eq!(headers[DEADLINE_REMAINING_MS], "1");
        BOTH.stamp(&mut headers, Some(Duration::MAX), None);
        assert_eq!(headers[DEADLINE_REMAINING_MS], u64::MAX.to_string());
    }

    #[test]
    fn leaves_nothing_of_what_another_hop_wrote() {
        let mut headers = HeaderMap::new();
        headers.append(RETRY_ATTEMPT, HeaderValue::from_static("7;max=9"));
        headers.append(RETRY_ATTEMPT, HeaderValue::from_static("8;max=9"));
        headers.append(DEADLINE_REMAINING_MS, HeaderValue::from_static("99999"));
        let mut retried = headers.clone();
        BOTH.stamp(&mut retried, Some(LEAST_REMAINING), Some((2, 3)));
        let values: Vec<_> = retried.get_all(RETRY_ATTEMPT).iter().collect();
        assert_eq!(values, ["2;max=3"]);
        assert_eq!(retried[DEADLINE_REMAINING_MS], "1");
        BOTH.stamp(&mut headers, None, None);
        assert!(headers.is_empty());
    }

    #[test]
    fn touches_nothing_that_is_switched_off() {
        let off = StampHeaders {
            deadline: false,
            attempt: false,
        };
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_ATTEMPT, HeaderValue::from_static("mine"));
        off.stamp(&mut headers, Some(LEAST_REMAINING), Some((1, 2)));
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[RETRY_ATTEMPT], "mine");
    }
}
