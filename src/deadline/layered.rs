use super::RetryAttempt;

/// What a layer does under a caller that retries already.
///
/// Three layers of three attempts are 27 requests at the leaf of a chain, unless one of them is the
/// one who retries. A deadline alone never makes a layer skip its retries: Envoy and every gRPC
/// caller send one without retrying. It only bounds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayeredRetries {
    /// One attempt under a caller that may send the request more than once. The outcome is passed up
    /// untouched, and so is the caller's attempt number, to those further down. A chain of any length
    /// sends as many requests to its leaf as the first of its layers makes attempts.
    #[default]
    Skip,
    /// One attempt for a request that is itself a retry; for a first attempt, as many as ever.
    ///
    /// The layer nearest to the leaf makes its attempts, and those above, told that it gave up
    /// ([`x-retry-exhausted`](super::RETRY_EXHAUSTED)), ask no more: as many requests as with
    /// [`Skip`](Self::Skip). Where they are not told, each layer adds its retries:
    /// `1 + layers * (attempts - 1)`, so three layers of three attempts send 7.
    SkipRetried,
    /// As many attempts as ever, as long as time allows.
    ///
    /// The layers above one that gave up do not ask again when they are told so, and the leaf gets
    /// the attempts of one layer. Where they are not told, or for a reason after which another
    /// replica may be well ([`forbids_retry_above`](crate::reason::StopReason::forbids_retry_above)),
    /// the counts of the layers multiply.
    WithinDeadline,
}

impl LayeredRetries {
    /// Whether the retries of a call are the caller's, and not this layer's.
    pub(crate) fn skips(self, inherited: RetryAttempt) -> bool {
        match self {
            Self::Skip => inherited.is_owned(),
            Self::SkipRetried => inherited.is_retry(),
            Self::WithinDeadline => false,
        }
    }
}

/// A request extension: a layer outside in the same stack retries this request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetriedAbove;
