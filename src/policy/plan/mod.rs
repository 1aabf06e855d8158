//! How many attempts fit: pure and exact arithmetic, without a clock.
//!
//! Attempts that are picked apart from the back-off either end long before the time that was promised, or
//! never fit into it. A [`Plan`] has the back-off and the limits; each of its questions is answered with a
//! [`Schedule`] that says when every attempt begins, and what it ended at.
//!
//! ```
//! use std::time::Duration;
//! use tower_retry_budget::policy::{Backoff, plan::{Bound, Plan}};
//!
//! # fn main() -> Result<(), tower_retry_budget::ConfigError> {
//! let secs = Duration::from_secs;
//! let backoff = Backoff::builder().base(secs(2)).cap(secs(300)).build()?;
//!
//! // "It is tried for a quarter of an hour."
//! let schedule = Plan::new(backoff.clone()).fit(secs(900));
//! assert_eq!(schedule.max_attempts(), 13);
//! assert_eq!(schedule.span(), secs(855));
//! assert_eq!(schedule.bound(), Bound::Window);
//!
//! // "No more than four times, whatever the window."
//! let schedule = Plan::new(backoff).max_attempts(4).fit(secs(900));
//! assert_eq!(schedule.bound(), Bound::MaxAttempts);
//! # Ok(())
//! # }
//! ```
//!
//! # Where the window comes from
//!
//! From the dependency's past incidents, not from taste: take how long each of them lasted, and cover the
//! 95th percentile ([`Plan::cover`]). Where a promise was made ("delivered within a quarter of an hour"),
//! the promise is the window ([`Plan::fit`]). Where somebody waits, their patience is
//! ([`Plan::fit_latency`]), and every attempt may take its whole time-out.
//!
//! | class of work | window | what to do |
//! |---|---|---|
//! | interactive | under 1 s to 10 s | 2 or 3 attempts; after that the person tries again |
//! | batch step | 1 to 5 min | few attempts with long waits; the scheduler has the rest |
//! | event, webhook | up to about 15 min | as many attempts as fit, then a dead-letter queue |
//!
//! Past about 15 minutes ([`LONGEST_WINDOW`]) work belongs in a queue that outlives the process, not in a
//! request that sleeps: a deploy ends every sleeping request.
//!
//! # Tiers
//!
//! Attempts of nested layers multiply. [`Tiers`] divides a total of them, and of time, so that the product
//! stays within it.

mod delays;
mod question;
mod schedule;
mod tiers;

pub use self::{
    question::Plan,
    schedule::{Bound, PlannedAttempt, Schedule},
    tiers::{Tier, Tiers},
};
pub(super) use delays::Delays;

use std::time::Duration;

/// The longest window in which work may sensibly sleep in a request: 15 minutes. Longer work belongs in a
/// queue that outlives the process.
pub const LONGEST_WINDOW: Duration = Duration::from_secs(15 * 60);

/// The most attempts that a schedule has. More is not a retry any more but a poll.
pub const MOST_ATTEMPTS: u32 = 1000;
