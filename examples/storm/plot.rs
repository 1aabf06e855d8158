//! Charts: what happened over time, a line for each rule.

use crate::{rules::Rule, sim::Run};
use std::{ops::Range, time::Duration};

/// Panels above each other, over the same time.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// The name of the file, without its ending.
    pub(crate) file: &'static str,
    title: &'static str,
    /// When things were bad, in seconds.
    bad: Range<f64>,
    span: f64,
    panels: Vec<Panel>,
}

#[derive(Clone, Debug)]
struct Panel {
    label: &'static str,
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    rule: Rule,
    points: Vec<(f64, f64)>,
}

impl Chart {
    pub(crate) fn new(file: &'static str, title: &'static str, bad: Range<f64>) -> Self {
        let panel = |label| Panel { label, lines: Vec::new() };
        Self {
            file,
            title,
            bad,
            span: 0.0,
            panels: ["calls that succeed, per second", "requests at the server, per second", "requests in the server"]
                .map(panel)
                .to_vec(),
        }
    }

    /// Adds the line of a rule to each panel, with a point for each `bin`.
    pub(crate) fn add(&mut self, rule: Rule, run: &Run, bin: Duration) {
        self.span = run.span.as_secs_f64();
        let all = [run.goodput_per_second(bin), run.requests_per_second(bin), run.longest_queue(bin)];
        for (panel, values) in self.panels.iter_mut().zip(all) {
            let width = bin.as_secs_f64();
            let points = values.into_iter().enumerate();
            let points = points.map(|(place, value)| ((place as f64 + 0.5) * width, value));
            panel.lines.push(Line { rule, points: points.collect() });
        }
    }
}
