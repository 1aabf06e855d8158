//! What the example says of the crate, and whether it is so.

use crate::report::Report;
use std::error::Error;

/// Script calls per second, process and key.
pub(crate) const MOST_SCRIPT_CALLS: f64 = 8.0;

/// Seconds that a process may take to find out that Redis is gone, and that it is back: connecting
/// anew is tried every 2 s at least.
const TO_NOTICE: u32 = 1;
const TO_RETURN: u32 = 3;

pub(crate) fn check(report: &Report) -> Result<(), Box<dyn Error>> {
    let schedule = report.schedule();
    let mut claims = Claims::default();
    println!();

    let (looks, unsound) = report.looks();
    claims.check(
        format!(
            "in {looks} looks at the ledger the balance was never negative, and always earned + back \
             - leased - owed"
        ),
        looks > 0 && unsound == 0,
    );
    let most = report.most_script_calls();
    claims.check(
        format!(
            "Redis ran at most {most:.2} script calls per second and process over any 10 s (limit \
             {MOST_SCRIPT_CALLS})"
        ),
        most <= MOST_SCRIPT_CALLS,
    );

    for (outage, what) in [
        (schedule.first_outage(), "in the first outage"),
        (schedule.frozen_outage(), "in the outage with Redis frozen"),
    ] {
        // The balance, half as much again that may have been leased, and one that comes in each
        // second.
        let cap = u64::from(report.cap());
        let bound = cap + cap / 2 + u64::try_from(outage.len())?;
        let totals = report.in_seconds(outage);
        let unlimited = 2 * totals.calls;
        claims.check(
            format!(
                "{what} the fleet retried {} times, from 1 to {bound} (without a budget: \
                 {unlimited})",
                totals.spent
            ),
            (1..=bound).contains(&totals.spent),
        );
    }

    let frozen = schedule.frozen();
    claims.check(
        format!("{TO_NOTICE} s after Redis froze all went by their local share"),
        report.is_alone(frozen.start + TO_NOTICE..frozen.end),
    );
    claims.check(
        format!("{TO_RETURN} s after it thawed at the latest all were in fleet mode again"),
        report.is_fleet(frozen.end..frozen.end + TO_RETURN),
    );
    let end = report.at_end();
    claims.check(
        format!(
            "each of the {} calls sent its first attempt and got a response",
            end.calls
        ),
        end.calls > 0 && end.attempts >= end.calls && end.unanswered == 0,
    );
    claims.finish()
}

#[derive(Default)]
struct Claims {
    broken: Vec<String>,
}

impl Claims {
    fn check(&mut self, claim: String, holds: bool) {
        println!("   {} {claim}", if holds { "ok:" } else { "NOT SO:" });
        if !holds {
            self.broken.push(claim);
        }
    }

    fn finish(self) -> Result<(), Box<dyn Error>> {
        if !self.broken.is_empty() {
            return Err(format!("claims that did not hold: {:?}", self.broken).into());
        }
        println!("All of it held.");
        Ok(())
    }
}
