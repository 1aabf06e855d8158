use std::fmt;

/// A setting was given a value that it cannot have.
///
/// Returned by the `build` methods, so that an invalid configuration never exists.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// The name of the setter.
    pub setting: &'static str,
    /// The value it was given.
    pub value: String,
    /// What it would have accepted.
    pub expected: &'static str,
}

impl ConfigError {
    pub(crate) fn new(
        setting: &'static str,
        value: impl fmt::Debug,
        expected: &'static str,
    ) -> Self {
        Self {
            setting,
            value: format!("{value:?}"),
            expected,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            setting,
            value,
            expected,
        } = self;
        write!(f, "`{setting}` cannot be {value}: expected {expected}")
    }
}

impl std::error::Error for ConfigError {}
