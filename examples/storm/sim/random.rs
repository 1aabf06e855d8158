//! Chance, the same for the same seed.

use std::time::Duration;

/// A stream of random numbers of its own for each part of a run, so that a rule which draws more
/// often does not change what the others draw.
#[derive(Clone, Debug)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64, part: &str) -> Self {
        // FNV-1a: any mix of the two will do, as long as it is the same everywhere.
        let mut mixed = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in part.bytes() {
            mixed = (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Self(fastrand::Rng::with_seed(mixed))
    }

    /// Another stream, decided by this one.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.0.fork())
    }

    /// A number from 0 up to but not including 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.0.f64()
    }

    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit.max(1))
    }

    /// A time between events that come at random, `mean` apart.
    pub(crate) fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.share()).ln())
    }
}

/// How long something takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delay {
    /// No time at all.
    None,
    /// As long as this on average, with an exponential distribution.
    Exponential(Duration),
    /// From the one to the other, evenly.
    Even(Duration, Duration),
    /// As long as this on average: the sum of four exponential times, so that few are very short.
    Erlang(Duration),
}

impl Delay {
    pub(crate) fn draw(self, random: &mut Random) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Exponential(mean) => random.exponential(mean),
            Self::Even(low, high) => low + (high - low).mul_f64(random.share()),
            Self::Erlang(mean) => (0..4).map(|_| random.exponential(mean / 4)).sum(),
        }
    }
}
