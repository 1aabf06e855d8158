//! What the scenarios of a storm have in common: something goes wrong for a while, and a table says what
//! became of it under each rule.

use super::{Lab, SECOND, each};
use crate::{
    plot::Chart,
    report::{Claim, Report, Table, mean},
    rules::{Policy, Rule},
    sim::{Run, Server, Setup},
};
use std::{ops::Range, time::Duration};

/// Recovery is to come this soon after that of a server which is offered first attempts only.
const SOON: Duration = Duration::from_secs(2);

pub(super) struct Storm<'a> {
    pub(super) setup: Setup,
    /// When things are bad.
    pub(super) bad: Range<Duration>,
    /// The calls per second that begin meanwhile, which the peak is a multiple of.
    pub(super) rps: f64,
    /// The first has to be [`Rule::NoRetries`]: what the others are judged by.
    pub(super) rules: &'a [Rule],
    /// The policy of the crate's default, where it is not that of the others.
    pub(super) default_policy: Option<Policy>,
}

impl<'a> Storm<'a> {
    /// One in which all rules have the setup's policy.
    pub(super) fn new(setup: Setup, bad: Range<Duration>, rps: f64, rules: &'a [Rule]) -> Self {
        Self {
            setup,
            bad,
            rps,
            rules,
            default_policy: None,
        }
    }

    /// Runs all rules, and writes the table, the claims and the chart.
    pub(super) fn run(
        &self,
        lab: &Lab<'_>,
        report: &mut Report,
        mut chart: Option<Chart>,
        server: impl Fn(u64) -> Box<dyn Server>,
    ) {
        let head = [
            "rule",
            "success, bad",
            "after",
            "attempts",
            "peak load",
            "recovered",
            "p99",
        ];
        let mut table = Table::new(head);
        let mut first_only = Vec::new();
        let mut claims = Vec::new();
        for &rule in self.rules {
            let mut setup = self.setup.clone();
            if let (Rule::Default, Some(policy)) = (rule, self.default_policy) {
                setup.policy = policy;
            }
            let runs = lab.runs(&setup, rule, &server);
            let recovered: Vec<_> = runs.iter().map(|run| self.recovered(run)).collect();
            table.row(self.row(rule, &runs, &recovered));
            match rule {
                Rule::NoRetries => first_only = recovered,
                Rule::Default => claims.push(recovery(&first_only, &recovered)),
                _ => {}
            }
            if let (Some(chart), Some(run)) = (&mut chart, runs.first()) {
                chart.add(rule, run, SECOND / 2);
            }
        }
        report.table(table);
        for claim in claims {
            report.claim(claim);
        }
        report.charts.extend(chart);
    }

    fn recovered(&self, run: &Run) -> Option<Duration> {
        run.recovered(self.bad.end, self.setup.span)
    }

    fn row(&self, rule: Rule, runs: &[Run], recovered: &[Option<Duration>]) -> [String; 7] {
        let (bad, after) = (self.bad.clone(), self.bad.end..self.setup.span);
        let peak = each(runs, |run| {
            run.peak(self.bad.start..self.setup.span, SECOND / 2) / self.rps
        });
        let p99 = each(runs, |run| {
            run.p99(self.bad.start..self.setup.span)
                .unwrap_or_default()
                .as_secs_f64()
        });
        [
            rule.to_string(),
            format!("{:.1} %", mean(&each(runs, |run| run.success(bad.clone())))),
            format!(
                "{:.1} %",
                mean(&each(runs, |run| run.success(after.clone())))
            ),
            format!("{:.2}", mean(&each(runs, |run| run.load(bad.clone())))),
            format!("{:.2}", mean(&peak)),
            match latest(recovered) {
                None => "never".into(),
                Some(at) => format!("after {:.1} s", (at - self.bad.end).as_secs_f64()),
            },
            format!("{:.0} ms", 1000.0 * mean(&p99)),
        ]
    }
}

/// The recovery of the seed that was the slowest.
fn latest(recovered: &[Option<Duration>]) -> Option<Duration> {
    let all: Option<Vec<_>> = recovered.iter().copied().collect();
    all?.into_iter().max()
}

fn recovery(first_only: &[Option<Duration>], ours: &[Option<Duration>]) -> Claim {
    let what = "recovers within 2 s of a server that is offered first attempts only";
    let late = first_only.iter().zip(ours).map(|pair| match pair {
        (Some(first_only), Some(ours)) => Some(ours.saturating_sub(*first_only)),
        // Nothing to compare with: not even first attempts alone would be answered.
        (None, _) => Some(Duration::ZERO),
        (Some(_), None) => None,
    });
    match late.collect::<Option<Vec<_>>>() {
        None => Claim::new(what, false, "never, with one seed at least"),
        Some(late) => {
            let latest = late.into_iter().max().unwrap_or_default();
            Claim::new(
                what,
                latest <= SOON,
                format!("{:.1} s later at worst", latest.as_secs_f64()),
            )
        }
    }
}
