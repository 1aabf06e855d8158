//! The back-off grows to its cap, stays there, and is never anything but a wait within its bounds.

use proptest::prelude::*;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tower_retry_budget::policy::{Backoff, BackoffBuilder, Jitter};

const ZERO: Duration = Duration::ZERO;
const NANO: Duration = Duration::from_nanos(1);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn built(builder: BackoffBuilder) -> Backoff {
    builder.build().expect("valid settings")
}

/// An exponential delay without jitter.
fn plain(base: Duration, factor: f64, cap: Duration) -> Backoff {
    built(
        Backoff::builder()
            .base(base)
            .factor(factor)
            .cap(cap)
            .jitter(Jitter::None),
    )
}

fn jittered(jitter: Jitter) -> Backoff {
    built(Backoff::builder().base(millis(100)).jitter(jitter))
}

/// The least, the mean and the greatest of many delays before the first retry.
fn spread(backoff: &Backoff) -> (Duration, Duration, Duration) {
    let delays: Vec<_> = (0..10_000).map(|_| backoff.delay(1, ZERO)).collect();
    let mean = delays.iter().sum::<Duration>() / 10_000;
    let least = delays.iter().min().expect("some");
    let greatest = delays.iter().max().expect("some");
    (*least, mean, *greatest)
}

// Defaults.

#[test]
fn the_default_doubles_from_50_ms_up_to_20_s() {
    let backoff = Backoff::default();
    assert_eq!(backoff.base(), millis(50));
    assert_eq!(backoff.factor(), 2.0);
    assert_eq!(backoff.cap(), secs(20));
    assert!(matches!(backoff.jitter(), Jitter::Full));
    let bounds: Vec<_> = (1..=11).map(|n| backoff.upper_bound(n)).collect();
    let expected = [
        50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 20_000, 20_000,
    ];
    assert_eq!(bounds, expected.map(millis));
}

#[test]
fn the_throttled_one_starts_at_1_s_and_keeps_half_of_it() {
    let backoff = Backoff::throttled();
    assert_eq!(backoff.upper_bound(1), secs(1));
    assert_eq!(backoff.upper_bound(2), secs(2));
    assert_eq!(backoff.upper_bound(9), secs(20));
    let (least, _, greatest) = spread(&backoff);
    assert!(least >= millis(500), "{least:?}");
    assert!(greatest <= secs(1), "{greatest:?}");
}

#[test]
fn none_never_waits() {
    for retry in [1, 2, 1000, u32::MAX] {
        assert_eq!(Backoff::none().delay(retry, secs(9)), ZERO);
    }
}

#[test]
fn a_fixed_delay_neither_grows_nor_varies() {
    for delay in [ZERO, NANO, secs(3), Duration::MAX] {
        for retry in [1, 2, 1000, u32::MAX] {
            assert_eq!(Backoff::fixed(delay).delay(retry, secs(9)), delay);
        }
    }
}

#[test]
fn retry_0_is_taken_for_the_first() {
    let backoff = Backoff::default();
    assert_eq!(backoff.upper_bound(0), millis(50));
    assert!(backoff.delay(0, ZERO) <= millis(50));
}

// Growth.

#[test]
fn growth_saturates_at_the_cap() {
    for (base, factor, cap, retries) in [
        (millis(10), 10.0, secs(60), 30),
        (secs(1), 2.0, secs(300), 70),
        (millis(50), 2.0, secs(5), 2000),
        (NANO, 10.0, secs(5), 400),
        (NANO, f64::MAX, Duration::MAX, 10),
        (secs(2), 1.000_001, secs(300), 70),
    ] {
        let backoff = plain(base, factor, cap);
        let mut last = ZERO;
        for retry in 1..=retries {
            let delay = backoff.delay(retry, last);
            assert!(delay >= last, "{backoff:?} fell at {retry}");
            assert!(delay <= cap, "{backoff:?} is over its cap at {retry}");
            last = delay;
        }
        if factor >= 2.0 {
            assert_eq!(last, cap, "{backoff:?}");
        }
        assert_eq!(backoff.delay(u32::MAX, last), cap, "{backoff:?}");
    }
}

#[test]
fn powers_at_the_width_of_an_integer_neither_wrap_nor_shrink() {
    let backoff = plain(secs(1), 2.0, Duration::MAX);
    for retry in [31, 32, 33, 64] {
        let power = secs(1_u64 << (retry - 1));
        assert_eq!(backoff.delay(retry, ZERO), power, "{retry}");
    }
    for retry in [65, 66, 1025, 1100, u32::MAX] {
        assert_eq!(backoff.delay(retry, ZERO), Duration::MAX, "{retry}");
    }
}

#[test]
fn a_factor_that_is_no_integer_grows_as_it_says() {
    let backoff = plain(millis(100), 1.5, secs(20));
    let bounds: Vec<_> = (1..=4).map(|n| backoff.delay(n, ZERO)).collect();
    let expected = [100_000, 150_000, 225_000, 337_500].map(Duration::from_micros);
    assert_eq!(bounds, expected);
}

#[test]
fn a_delay_depends_on_its_own_retry_and_not_on_those_before() {
    let backoff = plain(millis(10), 2.0, secs(60));
    for retry in [40, 3, 1, 3] {
        let alone = plain(millis(10), 2.0, secs(60)).delay(retry, ZERO);
        assert_eq!(backoff.delay(retry, ZERO), alone);
    }
}

#[test]
fn a_cap_below_the_base_holds_from_the_first_retry() {
    let backoff = plain(secs(5), 2.0, secs(1));
    assert_eq!(backoff.delay(1, ZERO), secs(1));
    assert_eq!(backoff.delay(2, ZERO), secs(1));
}

#[test]
fn the_smallest_and_the_largest_durations_are_fine() {
    for base in [ZERO, NANO, Duration::MAX] {
        for cap in [ZERO, NANO, Duration::MAX] {
            for jitter in every_jitter() {
                let builder = Backoff::builder().base(base).cap(cap).factor(10.0);
                let backoff = built(builder.jitter(jitter));
                for retry in [0, 1, 2, 309, u32::MAX] {
                    for previous in [ZERO, NANO, Duration::MAX] {
                        let delay = backoff.delay(retry, previous);
                        assert!(delay <= cap, "{backoff:?}");
                        assert!(!base.is_zero() || delay.is_zero(), "{backoff:?}");
                    }
                }
            }
        }
    }
    // Without jitter not even a nanosecond is lost to rounding.
    let backoff = plain(Duration::MAX, 2.0, Duration::MAX);
    assert_eq!(backoff.delay(1, ZERO), Duration::MAX);
}

// Jitter.

fn every_jitter() -> Vec<Jitter> {
    vec![
        Jitter::None,
        Jitter::Full,
        Jitter::Equal,
        Jitter::Decorrelated,
        Jitter::Share(0.0),
        Jitter::Share(-0.0),
        Jitter::Share(0.1),
        Jitter::Share(1.0),
        Jitter::from_fn(|| 0.5),
    ]
}

#[test]
fn full_jitter_spreads_over_the_whole_delay() {
    let (least, mean, greatest) = spread(&jittered(Jitter::Full));
    assert!(least < millis(2), "{least:?}");
    assert!((millis(45)..millis(55)).contains(&mean), "{mean:?}");
    assert!(
        (millis(98)..=millis(100)).contains(&greatest),
        "{greatest:?}"
    );
}

#[test]
fn equal_jitter_spreads_over_the_upper_half() {
    let (least, mean, greatest) = spread(&jittered(Jitter::Equal));
    assert!((millis(50)..millis(52)).contains(&least), "{least:?}");
    assert!((millis(72)..millis(78)).contains(&mean), "{mean:?}");
    assert!(
        (millis(98)..=millis(100)).contains(&greatest),
        "{greatest:?}"
    );
}

#[test]
fn a_share_is_the_part_that_is_random() {
    let (least, _, greatest) = spread(&jittered(Jitter::Share(0.1)));
    assert!((millis(90)..millis(91)).contains(&least), "{least:?}");
    assert!(
        (millis(99)..=millis(100)).contains(&greatest),
        "{greatest:?}"
    );
}

#[test]
fn a_share_of_nothing_does_not_vary() {
    for jitter in [Jitter::None, Jitter::Share(0.0), Jitter::Share(-0.0)] {
        let (least, _, greatest) = spread(&jittered(jitter));
        assert_eq!((least, greatest), (millis(100), millis(100)));
    }
}

#[test]
fn decorrelated_jitter_lies_between_the_base_and_three_times_the_delay_before() {
    let backoff = jittered(Jitter::Decorrelated);
    for _ in 0..10_000 {
        // The first has none before it, and starts from the base.
        let first = backoff.delay(1, ZERO);
        assert!((millis(100)..=millis(300)).contains(&first), "{first:?}");
        let second = backoff.delay(2, first);
        assert!((millis(100)..=first * 3).contains(&second), "{second:?}");
        assert!(second <= backoff.upper_bound(2));
    }
    let (least, _, greatest) = spread(&backoff);
    assert!(least < millis(103), "{least:?}");
    assert!(greatest > millis(297), "{greatest:?}");
}

#[test]
fn decorrelated_jitter_does_not_exceed_its_bound_whatever_came_before() {
    let backoff = jittered(Jitter::Decorrelated);
    let bounds: Vec<_> = (1..=6).map(|n| backoff.upper_bound(n)).collect();
    assert_eq!(bounds, [300, 900, 2700, 8100, 20_000, 20_000].map(millis));
    for _ in 0..1000 {
        assert!(backoff.delay(1, secs(60)) <= millis(300));
        assert!(backoff.delay(60, Duration::MAX) <= secs(20));
    }
}

#[test]
fn an_injected_ratio_multiplies_the_delay() {
    for (ratio, delay) in [(0.0, 0), (0.25, 25), (0.5, 50), (1.0, 100)] {
        let backoff = jittered(Jitter::from_fn(move || ratio));
        assert_eq!(backoff.delay(1, ZERO), millis(delay), "{ratio}");
        assert_eq!(backoff.delay(2, ZERO), millis(delay * 2), "{ratio}");
    }
}

#[test]
fn an_injected_ratio_cannot_leave_the_bounds() {
    for (ratio, delay) in [
        (-0.0, 0),
        (-1.0, 0),
        (f64::NEG_INFINITY, 0),
        (2.0, 100),
        (f64::INFINITY, 100),
        (f64::NAN, 100),
    ] {
        let backoff = jittered(Jitter::from_fn(move || ratio));
        assert_eq!(backoff.delay(1, ZERO), millis(delay), "{ratio}");
    }
}

#[test]
fn an_injected_ratio_is_asked_for_once_per_delay_and_never_for_a_bound() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let backoff = jittered(Jitter::from_fn(move || {
        count.fetch_add(1, Ordering::Relaxed);
        0.5
    }));
    backoff.upper_bound(3);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    backoff.delay(1, ZERO);
    backoff.clone().delay(2, ZERO);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

// Settings.

#[test]
fn refuses_a_factor_that_is_not_a_finite_number_of_at_least_1() {
    for factor in [
        0.0,
        -0.0,
        0.999,
        -2.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ] {
        let error = Backoff::builder().factor(factor).build().unwrap_err();
        assert_eq!(error.setting, "factor", "{factor}");
    }
    for factor in [1.0, 1.5, 10.0, f64::MAX] {
        assert!(Backoff::builder().factor(factor).build().is_ok());
    }
}

#[test]
fn refuses_a_share_outside_0_to_1() {
    for share in [-0.1, 1.1, 2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let jitter = Jitter::Share(share);
        let error = Backoff::builder().jitter(jitter).build().unwrap_err();
        assert_eq!(error.setting, "jitter", "{share}");
    }
    for share in [-0.0, 0.0, 0.5, 1.0] {
        let jitter = Jitter::Share(share);
        assert!(Backoff::builder().jitter(jitter).build().is_ok());
    }
}

// Random numbers.

fn sequence(backoff: &Backoff, len: usize) -> Vec<Duration> {
    (0..len).map(|_| backoff.delay(3, secs(1))).collect()
}

#[test]
fn the_same_seed_gives_the_same_sequence_and_another_seed_another() {
    let seeded = |seed| built(Backoff::builder().seed(seed));
    let delays = sequence(&seeded(7), 50);
    assert_eq!(sequence(&seeded(7), 50), delays);
    for seed in [0, 6, 8, u64::MAX] {
        let other = sequence(&seeded(seed), 50);
        let same = delays.iter().filter(|delay| other.contains(delay)).count();
        assert_eq!(same, 0, "seed {seed} is seed 7, shifted");
    }
}

#[test]
fn without_a_seed_two_sequences_differ() {
    let backoff = Backoff::default();
    assert_ne!(sequence(&backoff, 50), sequence(&backoff, 50));
}

#[test]
fn clones_draw_from_one_sequence_and_builds_do_not() {
    let builder = Backoff::builder().seed(7);
    let whole = sequence(&built(builder.clone()), 50);
    let backoff = built(builder);
    let clone = backoff.clone();
    let mut taken = sequence(&backoff, 20);
    taken.extend(sequence(&clone, 20));
    taken.extend(sequence(&backoff, 10));
    assert_eq!(taken, whole);
}

#[test]
fn clones_on_several_threads_draw_each_number_once() {
    let backoff = built(Backoff::builder().seed(7));
    let mut whole = sequence(&built(Backoff::builder().seed(7)), 4000);
    let mut taken = std::thread::scope(|scope| {
        let draw = || sequence(&backoff, 1000);
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect::<Vec<_>>()
    });
    whole.sort_unstable();
    taken.sort_unstable();
    assert_eq!(taken, whole);
}

/// A hundred cells for neighbours in the sequence: none is empty, none is crowded.
#[test]
fn a_seeded_sequence_does_not_follow_a_line() {
    for seed in [0, 1, 2, u64::MAX] {
        let builder = Backoff::builder().base(millis(100)).seed(seed);
        let backoff = built(builder);
        let mut cells = [0_u32; 100];
        let mut last = backoff.delay(1, ZERO);
        for _ in 0..20_000 {
            let next = backoff.delay(1, ZERO);
            let cell = |delay: Duration| (delay.as_millis() / 10).min(9) as usize;
            cells[cell(last) * 10 + cell(next)] += 1;
            last = next;
        }
        for count in cells {
            assert!((120..=280).contains(&count), "seed {seed}: {cells:?}");
        }
    }
}

// Properties.

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(ZERO),
        Just(NANO),
        Just(Duration::MAX),
        (0_u64..100_000).prop_map(millis),
        any::<u64>().prop_map(Duration::from_nanos),
        (any::<u64>(), 0_u32..1_000_000_000).prop_map(|(s, n)| Duration::new(s, n)),
    ]
}

fn factor() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(1.0),
        Just(2.0),
        Just(1.0 + f64::EPSILON),
        Just(f64::MAX),
        1.0..4.0,
        1.0..1e300,
    ]
}

fn retry() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..100, 0_u32..3000, any::<u32>(), Just(u32::MAX)]
}

fn jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        prop::sample::select(every_jitter()),
        (0.0..=1.0).prop_map(Jitter::Share),
        prop::num::f64::ANY.prop_map(|ratio| Jitter::from_fn(move || ratio)),
    ]
}

proptest! {
    #[test]
    fn every_delay_is_within_its_bound_and_the_cap(
        (base, cap, previous) in (duration(), duration(), duration()),
        (factor, jitter, retry) in (factor(), jitter(), retry()),
    ) {
        let builder = Backoff::builder().base(base).cap(cap).factor(factor);
        let backoff = built(builder.jitter(jitter));
        let bound = backoff.upper_bound(retry);
        prop_assert!(bound <= cap);
        prop_assert!(bound >= base.min(cap));
        prop_assert!(backoff.delay(retry, previous) <= bound);
    }

    #[test]
    fn the_bound_never_falls(
        (base, cap, factor) in (duration(), duration(), factor()),
        (jitter, retry) in (jitter(), retry()),
    ) {
        let builder = Backoff::builder().base(base).cap(cap).factor(factor);
        let backoff = built(builder.jitter(jitter));
        let next = backoff.upper_bound(retry.saturating_add(1));
        prop_assert!(backoff.upper_bound(retry) <= next);
    }

    #[test]
    fn the_part_that_is_not_random_is_always_waited_for(share in 0.0..=1.0, retry in retry()) {
        let backoff = built(Backoff::builder().jitter(Jitter::Share(share)));
        let bound = backoff.upper_bound(retry);
        let floor = bound.mul_f64(1.0 - share).saturating_sub(NANO);
        prop_assert!(backoff.delay(retry, ZERO) >= floor);
    }

    #[test]
    fn seeded_sequences_are_reproducible(
        (base, cap, factor) in (duration(), duration(), factor()),
        (jitter, seed) in (jitter(), any::<u64>()),
        retries in prop::collection::vec((retry(), duration()), 1..20),
    ) {
        let builder = Backoff::builder().base(base).cap(cap).factor(factor);
        let builder = builder.jitter(jitter).seed(seed);
        let (one, other) = (built(builder.clone()), built(builder));
        for (retry, previous) in retries {
            prop_assert_eq!(one.delay(retry, previous), other.delay(retry, previous));
        }
    }
}
