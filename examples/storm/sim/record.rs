//! What happened in a run, and what can be read from it.

use std::{ops::Range, time::Duration};

/// How long a window is in which success is judged.
const WINDOW: Duration = Duration::from_millis(500);

/// Which part of the calls succeed where a server is well.
const WELL: f64 = 95.0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallRecord {
    pub(crate) begun: Duration,
    pub(crate) took: Duration,
    pub(crate) succeeded: bool,
}

/// Writes down what happens.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    run: Run,
    open: usize,
}

impl Recorder {
    pub(crate) fn begin(&mut self) {
        self.open += 1;
    }

    pub(crate) fn end(&mut self, call: CallRecord) {
        self.open -= 1;
        self.run.calls.push(call);
    }

    pub(crate) fn request(&mut self, at: Duration, queued: usize) {
        self.run.requests.push(at);
        self.run.queue.push((at, queued));
    }

    /// The calls that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    pub(crate) fn take(&mut self) -> Run {
        std::mem::take(&mut self.run)
    }
}

/// Everything that happened.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// The calls that ended, in the order in which they did.
    pub(crate) calls: Vec<CallRecord>,
    /// When each request reached the server.
    pub(crate) requests: Vec<Duration>,
    /// What waited or worked in the server whenever a request reached it.
    pub(crate) queue: Vec<(Duration, usize)>,
    /// How long the run was.
    pub(crate) span: Duration,
}

impl Run {
    fn begun(&self, during: &Range<Duration>) -> impl Iterator<Item = &CallRecord> {
        let during = during.clone();
        self.calls
            .iter()
            .filter(move |call| during.contains(&call.begun))
    }

    /// Which part of the calls begun in that time succeeded, in percent.
    pub(crate) fn success(&self, during: Range<Duration>) -> f64 {
        let all = self.begun(&during).count();
        let saved = self.begun(&during).filter(|call| call.succeeded).count();
        100.0 * saved as f64 / all as f64
    }

    /// Requests at the server in that time for each call begun in it.
    pub(crate) fn load(&self, during: Range<Duration>) -> f64 {
        self.arrived(&during) as f64 / self.begun(&during).count() as f64
    }

    /// Requests at the server in that time.
    pub(crate) fn arrived(&self, during: &Range<Duration>) -> usize {
        self.requests
            .iter()
            .filter(|at| during.contains(at))
            .count()
    }

    /// Calls that succeeded, by when they did, for each second of that time.
    pub(crate) fn goodput(&self, during: Range<Duration>) -> f64 {
        let ended = self.calls.iter().filter(|call| call.succeeded);
        let ended = ended.filter(|call| during.contains(&(call.begun + call.took)));
        ended.count() as f64 / (during.end - during.start).as_secs_f64()
    }

    /// The requests per second in the busiest `bin` of that time.
    pub(crate) fn peak(&self, during: Range<Duration>, bin: Duration) -> f64 {
        let bins = bins(self.requests.iter().copied(), during, bin);
        bins.into_iter().fold(0.0, f64::max)
    }

    /// The requests per second at the server, for each `bin`.
    pub(crate) fn requests_per_second(&self, bin: Duration) -> Vec<f64> {
        bins(
            self.requests.iter().copied(),
            Duration::ZERO..self.span,
            bin,
        )
    }

    /// The calls per second that succeeded, for each `bin`.
    pub(crate) fn goodput_per_second(&self, bin: Duration) -> Vec<f64> {
        let ended = self.calls.iter().filter(|call| call.succeeded);
        let ended = ended.map(|call| call.begun + call.took);
        bins(ended, Duration::ZERO..self.span, bin)
    }

    /// The longest queue in each `bin`.
    pub(crate) fn longest_queue(&self, bin: Duration) -> Vec<f64> {
        let mut longest = vec![0.0; place(self.span, bin)];
        for (at, queued) in &self.queue {
            if let Some(slot) = longest.get_mut(place(*at, bin)) {
                *slot = f64::max(*slot, *queued as f64);
            }
        }
        longest
    }

    /// How long the slowest hundredth of the calls begun in that time that succeeded took at least.
    pub(crate) fn p99(&self, during: Range<Duration>) -> Option<Duration> {
        let saved = self.begun(&during).filter(|call| call.succeeded);
        let mut took: Vec<_> = saved.map(|call| call.took).collect();
        took.sort_unstable();
        took.get(took.len() * 99 / 100).copied()
    }

    /// When the calls begun from then on succeeded again, judged by windows of half a second: `None`
    /// if they never did. Calls begun in the last window are not judged.
    pub(crate) fn recovered(&self, after: Duration, until: Duration) -> Option<Duration> {
        let windows = place(until - after, WINDOW);
        let mut all = vec![0_u32; windows];
        let mut saved = vec![0_u32; windows];
        for call in self.begun(&(after..until)) {
            let window = place(call.begun - after, WINDOW);
            if let Some(all) = all.get_mut(window) {
                *all += 1;
                saved[window] += u32::from(call.succeeded);
            }
        }
        let ill = (0..windows)
            .rev()
            .find(|&window| 100.0 * f64::from(saved[window]) < WELL * f64::from(all[window]));
        match ill {
            None => Some(after),
            Some(last) if last + 1 == windows => None,
            Some(last) => Some(after + WINDOW.mul_f64((last + 1) as f64)),
        }
    }
}

/// In which bin a time falls.
fn place(at: Duration, bin: Duration) -> usize {
    usize::try_from(at.as_nanos() / bin.as_nanos()).unwrap_or(usize::MAX)
}

/// Events per second, for each bin.
fn bins(
    events: impl Iterator<Item = Duration>,
    during: Range<Duration>,
    bin: Duration,
) -> Vec<f64> {
    let mut bins = vec![0.0; place(during.end - during.start, bin)];
    for at in events.filter(|at| during.contains(at)) {
        if let Some(count) = bins.get_mut(place(at - during.start, bin)) {
            *count += 1.0 / bin.as_secs_f64();
        }
    }
    bins
}
