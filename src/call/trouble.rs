//! What a call keeps only once something has gone wrong, apart so that others stay small.

use super::Pending;
use crate::{budget::Permit, client::KeptError, exhausted::History};
use http::HeaderMap;
use std::{
    ops::{Deref, DerefMut},
    sync::LazyLock,
    time::{Duration, Instant},
};

/// What there is to know of attempts that failed, and of the waits between them.
#[derive(Default)]
pub(super) struct Trouble {
    /// The retry that stands, from the decision until it is sent.
    pub(super) retry: Option<Pending>,
    /// The retry under way.
    pub(super) permit: Option<Permit>,
    pub(super) waited: Duration,
    /// Since when the retry that was told of waits.
    pub(super) waiting_since: Option<Instant>,
    pub(super) last_wait: Duration,
    /// The latest wait that the server asked for, and when.
    pub(super) hint: Option<(Duration, Instant)>,
    pub(super) last_error: Option<KeptError>,
    /// What a `429` said of the caller's limits.
    pub(super) rate_limit: HeaderMap,
    pub(super) history: History,
}

/// Reads like a [`Trouble`], and allocates one when it is first written to.
#[derive(Default)]
pub(super) struct LazyTrouble(Option<Box<Trouble>>);

impl LazyTrouble {
    /// What there is, if there was any.
    pub(super) fn get_mut(&mut self) -> Option<&mut Trouble> {
        self.0.as_deref_mut()
    }
}

impl Deref for LazyTrouble {
    type Target = Trouble;

    fn deref(&self) -> &Trouble {
        static NONE: LazyLock<Trouble> = LazyLock::new(Trouble::default);
        match &self.0 {
            Some(trouble) => trouble,
            None => &NONE,
        }
    }
}

impl DerefMut for LazyTrouble {
    fn deref_mut(&mut self) -> &mut Trouble {
        self.0.get_or_insert_default()
    }
}
