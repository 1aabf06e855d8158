use std::fmt;

/// What a gate does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Mode {
    /// It decides.
    #[default]
    Enforce,
    /// It decides nothing, and what it would have decided is counted.
    Observe,
    /// It is not there.
    Off,
}

impl Mode {
    /// Returns `enforce`, `observe` or `off`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
            Self::Off => "off",
        }
    }

    pub(crate) const fn enforces(self) -> bool {
        matches!(self, Self::Enforce)
    }

    pub(crate) const fn observes(self) -> bool {
        matches!(self, Self::Observe)
    }
}

/// One kind of decision that the layer takes. The table in the [module](super) says what each does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gate {
    /// Sending a request again.
    Retry,
    /// Asking the budget for that.
    Budget,
    /// Refusing and cutting calls for their deadline.
    Deadline,
    /// Leaving retries to another layer.
    Skipping,
}

impl Gate {
    /// Every gate there is.
    pub const ALL: &'static [Self] = &[Self::Retry, Self::Budget, Self::Deadline, Self::Skipping];

    /// Returns the gate as it is written in metrics and in configurations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Budget => "budget",
            Self::Deadline => "deadline",
            Self::Skipping => "skipping",
        }
    }
}

/// The mode of each gate. All enforce by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Gates {
    pub(crate) retry: Mode,
    pub(crate) budget: Mode,
    pub(crate) deadline: Mode,
    pub(crate) skipping: Mode,
}

impl Gates {
    /// Puts every gate into the same mode.
    pub const fn all(mode: Mode) -> Self {
        Self {
            retry: mode,
            budget: mode,
            deadline: mode,
            skipping: mode,
        }
    }

    /// Puts one gate into a mode.
    #[must_use]
    pub const fn with(mut self, gate: Gate, mode: Mode) -> Self {
        match gate {
            Gate::Retry => self.retry = mode,
            Gate::Budget => self.budget = mode,
            Gate::Deadline => self.deadline = mode,
            Gate::Skipping => self.skipping = mode,
        }
        self
    }

    /// Returns the mode of a gate.
    pub const fn mode(self, gate: Gate) -> Mode {
        match gate {
            Gate::Retry => self.retry,
            Gate::Budget => self.budget,
            Gate::Deadline => self.deadline,
            Gate::Skipping => self.skipping,
        }
    }

    pub(crate) fn all_enforce(self) -> bool {
        self == Self::default()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
