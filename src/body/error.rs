use std::{error::Error, fmt};

/// A request body was taken over by a later attempt.
///
/// What the [`ReplayBody`](super::ReplayBody) of an attempt that was given up fails with, so that
/// the connection that still holds it is let go. It never reaches the caller of a call that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Superseded;

impl fmt::Display for Superseded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request body was taken over by a retry")
    }
}

impl Error for Superseded {}

/// The deadline of the request passed while its response body was still streaming.
///
/// What a body under a [`CoverBodyLayer`](crate::deadline::CoverBodyLayer) ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlineExceeded;

impl fmt::Display for DeadlineExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline passed while the response body was streaming")
    }
}

impl Error for DeadlineExceeded {}

/// The rest of a body cannot be had any more, so that what was sent of it must not pass for whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incomplete;

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request body cannot be sent whole any more")
    }
}

impl Error for Incomplete {}
