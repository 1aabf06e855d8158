use crate::reason::Cause;
use http::StatusCode;
use std::borrow::Cow;

/// Which response statuses are failures that another attempt might mend.
///
/// The default table is 408, 425, 429, 500, 502, 503 and 504.
///
/// ```
/// use http::StatusCode;
/// use tower_retry_budget::policy::StatusTable;
///
/// let table = StatusTable::default();
/// assert!(table.contains(StatusCode::BAD_GATEWAY));
/// assert!(!table.contains(StatusCode::NOT_IMPLEMENTED));
///
/// let table = table.with(StatusCode::LOCKED).without(StatusCode::INTERNAL_SERVER_ERROR);
/// assert!(table.contains(StatusCode::LOCKED));
/// assert!(!table.contains(StatusCode::INTERNAL_SERVER_ERROR));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusTable {
    statuses: Cow<'static, [u16]>,
    unregistered_5xx: bool,
}

/// The 5xx statuses of the IANA registry. An unregistered one counts as a `500` (RFC 9110,
/// section 15), but only where a table says so.
const REGISTERED_5XX: &[u16] = &[500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511];

impl StatusTable {
    pub(super) const DEFAULT: Self = Self {
        statuses: Cow::Borrowed(&[408, 425, 429, 500, 502, 503, 504]),
        unregistered_5xx: false,
    };

    /// Creates a table of just these statuses.
    pub fn new(statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        Self {
            statuses: statuses.into_iter().map(|status| status.as_u16()).collect(),
            unregistered_5xx: false,
        }
    }

    /// The table for delivering webhooks: the default and 507, 509, and any 5xx that no standard
    /// registers.
    pub const fn webhooks() -> Self {
        Self {
            statuses: Cow::Borrowed(&[408, 425, 429, 500, 502, 503, 504, 507, 509]),
            unregistered_5xx: true,
        }
    }

    /// The table for public APIs: the default, what Cloudflare answers in place of a server behind it (520 to
    /// 524), and 529, with which some APIs say that they are overloaded.
    ///
    /// No 409: a conflict is an answer. An API that documents it as transient has it added.
    pub const fn apis() -> Self {
        Self {
            statuses: Cow::Borrowed(&[
                408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529,
            ]),
            unregistered_5xx: false,
        }
    }

    /// Statuses that say that the work was not begun, rather than that it went wrong.
    pub(super) const REFUSED: Self = Self {
        statuses: Cow::Borrowed(&[425, 429, 502, 503, 529]),
        unregistered_5xx: false,
    };

    /// The empty table: no response is retried, only errors that prove that nothing was processed or
    /// a broken connection.
    pub const fn connection_errors_only() -> Self {
        Self {
            statuses: Cow::Borrowed(&[]),
            unregistered_5xx: false,
        }
    }

    /// The table for a server's own handlers: 502, 503 and 504.
    pub const fn handlers() -> Self {
        Self {
            statuses: Cow::Borrowed(&[502, 503, 504]),
            unregistered_5xx: false,
        }
    }

    /// Adds a status.
    #[must_use]
    pub fn with(mut self, status: StatusCode) -> Self {
        if !self.statuses.contains(&status.as_u16()) {
            self.statuses.to_mut().push(status.as_u16());
        }
        self
    }

    /// Takes a status out.
    #[must_use]
    pub fn without(mut self, status: StatusCode) -> Self {
        self.statuses
            .to_mut()
            .retain(|listed| *listed != status.as_u16());
        self
    }

    /// Whether a response with this status is a failure that another attempt might mend.
    pub fn contains(&self, status: StatusCode) -> bool {
        let code = status.as_u16();
        self.statuses.contains(&code)
            || (self.unregistered_5xx
                && status.is_server_error()
                && !REGISTERED_5XX.contains(&code))
    }
}

impl Default for StatusTable {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What kind of failure a retryable status is.
pub(super) fn cause(status: StatusCode) -> Cause {
    match status {
        StatusCode::TOO_MANY_REQUESTS => Cause::Throttled,
        StatusCode::SERVICE_UNAVAILABLE => Cause::Unavailable,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => Cause::Timeout,
        // No standard has these: a server that is overloaded, and a proxy that waited in vain for it.
        _ => match status.as_u16() {
            529 => Cause::Unavailable,
            522 | 524 => Cause::Timeout,
            _ => Cause::ServerError,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(table: &StatusTable) -> Vec<u16> {
        (100..1000)
            .filter(|code| table.contains(StatusCode::from_u16(*code).expect("in range")))
            .collect()
    }

    #[test]
    fn retries_exactly_the_statuses_of_the_default_table() {
        let table = StatusTable::default();
        assert_eq!(listed(&table), [408, 425, 429, 500, 502, 503, 504]);
    }

    #[test]
    fn retries_unregistered_server_errors_only_for_webhooks() {
        let table = listed(&StatusTable::webhooks());
        assert!(table.contains(&509) && table.contains(&520) && table.contains(&507));
        assert!(!table.contains(&501) && !table.contains(&511) && !table.contains(&600));
        assert!(listed(&StatusTable::connection_errors_only()).is_empty());
    }
}
