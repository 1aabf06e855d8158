use super::*;
use std::sync::{Arc, Barrier};

const REFILL: Duration = Duration::from_secs(3);

fn map(limit: usize) -> KeyMap<Instant> {
    // An account is refilled that long after it was made.
    KeyMap::new(
        limit,
        |now| now,
        |made, now| now.saturating_duration_since(*made) >= REFILL,
    )
}

fn key(n: usize) -> Key {
    Key::new(format!("key {n}"))
}

#[test]
fn does_not_pass_the_limit_when_threads_race_for_the_last_places() {
    let map = Arc::new(map(100));
    let now = crate::clock::now();
    let barrier = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let (map, barrier) = (map.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                // Neighbouring threads share half of their keys.
                for n in 0..200 {
                    map.with(&key(thread * 100 + n), now, |_, _| ());
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(map.len(), 100);
    let entries = map.shards.iter().map(|shard| shard.read().unwrap().len());
    assert_eq!(entries.sum::<usize>(), 100);
}

#[test]
fn gives_one_key_one_account_when_threads_race_for_the_only_place() {
    for _ in 0..200 {
        let map = Arc::new(map(1));
        let now = crate::clock::now();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let map = map.clone();
                std::thread::spawn(move || map.with(&key(0), now, |_, account| account))
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Account::Own);
        }
    }
}

#[test]
fn evicts_what_is_refilled_in_whatever_shard_and_nothing_else() {
    let map = map(64);
    let start = crate::clock::now();
    for n in 0..64 {
        // Every other account is made two seconds later.
        let made = if n % 2 == 0 {
            start
        } else {
            start + Duration::from_secs(2)
        };
        map.with(&key(n), made, |_, _| ());
    }
    let has = |n| map.with_existing(&key(n), |account| account.is_some());
    for n in 64..96 {
        assert_eq!(map.with(&key(n), start + REFILL, |_, a| a), Account::Own);
    }
    assert!((0..64).all(|n| has(n) == (n % 2 == 1)));
    assert_eq!(
        map.with(&key(96), start + REFILL, |_, a| a),
        Account::Overflow
    );
    assert_eq!((map.len(), map.overflowed()), (64, 1));
}

#[test]
fn has_room_for_requests_without_an_authority_at_any_time() {
    let map = map(1);
    let now = crate::clock::now();
    let plain = Key::no_authority();
    map.with(&key(0), now, |_, _| ());
    map.with(&key(1), now, |_, _| ());
    assert_eq!(map.look(&key(1), |made| *made), Some(now), "the shared one");
    assert_eq!(map.look(&plain, |made| *made), None);
    assert!(!map.with_existing(&plain, |account| account.is_some()));
    assert_eq!(map.with(&plain, now, |_, account| account), Account::Own);
    assert_eq!(map.look(&plain, |made| *made), Some(now));
    assert_eq!((map.len(), map.entries(), map.overflowed()), (2, 1, 1));
}

#[test]
fn searches_each_shard_at_most_once_a_second() {
    let tested = Arc::new(AtomicUsize::new(0));
    let count = tested.clone();
    let map = KeyMap::new(
        100,
        |_| (),
        move |(), _| {
            count.fetch_add(1, Ordering::Relaxed);
            false
        },
    );
    let start = crate::clock::now();
    for n in 0..5_000 {
        map.with(&key(n), start, |_, _| ());
    }
    assert_eq!(tested.load(Ordering::Relaxed), 100);
    map.with(&key(5_000), start + Duration::from_millis(999), |_, _| ());
    assert_eq!(tested.load(Ordering::Relaxed), 100);
    map.with(&key(5_000), start + Duration::from_secs(1), |_, _| ());
    assert_eq!(tested.load(Ordering::Relaxed), 200);
}

#[test]
fn works_on_after_a_closure_panicked() {
    let map = map(1);
    let now = crate::clock::now();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        map.with(&key(0), now, |_, _| panic!("under the write lock"));
    }));
    assert!(panicked.is_err());
    assert_eq!(map.with(&key(0), now, |_, a| a), Account::Own);
}
