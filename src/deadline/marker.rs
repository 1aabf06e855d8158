use crate::reason::StopReason;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Dictionary, ListEntry, Parser};
use std::time::Duration;

/// The response header that tells the layer above that this one gave up, and why:
/// `reason=max_attempts, attempts=3, elapsed-ms=1234`, a dictionary (RFC 9651).
///
/// It is sent only to a caller that sent [`x-retry-attempt`](crate::deadline::RETRY_ATTEMPT).
pub const RETRY_EXHAUSTED: HeaderName = HeaderName::from_static("x-retry-exhausted");

/// What is told upwards of a call that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) reason: StopReason,
    pub(crate) attempts: u32,
    pub(crate) elapsed: Duration,
}

impl Marker {
    pub(crate) fn write(self) -> HeaderValue {
        let reason = self.reason.as_str();
        let attempts = self.attempts;
        // The largest integer that the format has room for.
        let elapsed = self.elapsed.as_millis().min(999_999_999_999_999);
        let value = format!("reason={reason}, attempts={attempts}, elapsed-ms={elapsed}");
        HeaderValue::try_from(value).expect("ASCII is a valid header value")
    }
}

impl Marker {
    /// Reads the header of a response. A value that is malformed, or gives a reason that is not
    /// known, says nothing.
    pub(super) fn read(headers: &HeaderMap, name: &HeaderName) -> Option<Self> {
        let lines = headers.get_all(name).iter();
        lines
            .filter_map(Self::parse)
            .max_by_key(|marker| marker.reason.forbids_retry_above())
    }

    fn parse(value: &HeaderValue) -> Option<Self> {
        let members: Dictionary = Parser::new(value.as_bytes()).parse().ok()?;
        let item = |name| match members.get(name) {
            Some(ListEntry::Item(item)) => Some(&item.bare_item),
            _ => None,
        };
        let number = |name| match item(name) {
            Some(BareItem::Integer(number)) => u64::try_from(i64::from(*number)).ok(),
            _ => None,
        };
        let BareItem::Token(reason) = item("reason")? else {
            return None;
        };
        Some(Self {
            reason: StopReason::from_name(reason.as_str())?,
            attempts: u32::try_from(number("attempts").unwrap_or(0)).unwrap_or(u32::MAX),
            elapsed: Duration::from_millis(number("elapsed-ms").unwrap_or(0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn forbids(value: &str) -> bool {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::try_from(value).expect("a valid value");
        headers.append(RETRY_EXHAUSTED, value);
        forbids_retry(&headers)
    }

    fn forbids_retry(headers: &HeaderMap) -> bool {
        let marker = Marker::read(headers, &RETRY_EXHAUSTED);
        marker.is_some_and(|marker| marker.reason.forbids_retry_above())
    }

    #[test]
    fn says_what_the_layer_above_is_to_do() {
        for &reason in StopReason::ALL {
            let marker = Marker {
                reason,
                attempts: 3,
                elapsed: Duration::MAX,
            };
            let mut headers = HeaderMap::new();
            headers.append(RETRY_EXHAUSTED, marker.write());
            assert_eq!(
                forbids_retry(&headers),
                reason.forbids_retry_above(),
                "{reason}"
            );
        }
        assert!(forbids("reason=budget"));
        assert!(forbids("attempts=1, reason=max_attempts;x=1, new"));
        assert!(!forbids("reason=attempt_timeout"));
    }

    #[test]
    fn says_nothing_when_it_cannot_be_read() {
        let malformed = [
            "",
            "reason",
            "reason=\"budget\"",
            "reason=(budget)",
            "reason=no_such",
        ];
        for value in malformed
            .into_iter()
            .chain(["reason=budget,", "Reason=budget", "budget"])
        {
            assert!(!forbids(value), "{value:?}");
        }
        assert!(!forbids(&"9".repeat(10_000)));
        assert!(!forbids_retry(&HeaderMap::new()));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let _ = Marker::parse(&value);
            }
        }
    }
}
