use crate::ConfigError;
use std::fmt;

/// A configuration could not be read, or says what cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigFileError {
    /// Where, as in `policies.search.max_attempts`. Empty where there is no telling.
    pub path: String,
    /// What is wrong there, and, where the format knows it, in which line.
    pub message: String,
}

impl ConfigFileError {
    pub(super) fn new(path: impl Into<String>, message: impl fmt::Display) -> Self {
        Self {
            path: path.into(),
            message: message.to_string().trim_end().to_owned(),
        }
    }

    /// A setting below `path` was refused.
    pub(super) fn setting(path: &str, error: &ConfigError) -> Self {
        let message = format!("{}: expected {}", error.value, error.expected);
        Self::new(format!("{path}.{}", error.setting), message)
    }
}

impl fmt::Display for ConfigFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigFileError {}
