//! The scenario of a file.

use super::{Lab, storm::Storm};
use crate::{
    config::Config,
    plot::Chart,
    report::Report,
    rules::{Policy, Rule},
    sim::Queue,
};

/// Runs what the file describes: without retries, with its policy, and with the default.
pub(crate) fn run(lab: &Lab<'_>, config: &Config) -> Report {
    let mut report = Report::default();
    let (bad, setup) = (config.bad(), config.setup());
    let chart = Chart::new(
        "own",
        "Your scenario",
        bad.start.as_secs_f64()..bad.end.as_secs_f64(),
        setup.span.as_secs_f64(),
    );
    let storm = Storm {
        bad,
        rps: config.rps(),
        rules: &[Rule::NoRetries, config.rule(), Rule::Default],
        default_policy: Some(Policy::default()),
        setup,
    };
    storm.run(lab, &mut report, Some(chart), |seed| {
        let (workers, work, queue) = config.server.size();
        Box::new(Queue::new(seed, workers, work, queue, config.state()))
    });
    report.note(
        "The default is the crate's, whole: its policy as well as its budget, and no time-out for an attempt.\n\
         No retries is one attempt with the time-outs of your policy.",
    );
    report
}
