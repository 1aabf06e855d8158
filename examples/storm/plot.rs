//! Charts.

/// Panels above each other, over the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chart {
    pub(crate) file: &'static str,
}
