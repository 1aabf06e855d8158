//! A store that hangs, refuses, or loses its replies.

use super::*;

#[tokio::test(start_paused = true)]
async fn waits_fifty_milliseconds_at_most_and_then_spends_its_share() {
    let store = Fake::new(8);
    let budget = budget_by(&TokenBudget::builder().cap(100).no_trickle(), &store);
    sync(&budget, &KEY).await;
    store.set(Does::Hang);
    let began = clock::now();
    assert!(spend(&budget).await, "a half of 8 is this process's");
    let waited = clock::now() - began;
    assert!((50 * MS..52 * MS).contains(&waited), "{waited:?}");
    // Those who come after do not wait.
    let began = clock::now();
    let mut granted = 1;
    while spend(&budget).await {
        granted += 1;
    }
    assert_eq!(granted, 4);
    assert_eq!(clock::now(), began);
    assert_eq!(mode(&budget, &KEY), Some(StoreMode::LocalShare));
}

#[tokio::test(start_paused = true)]
async fn has_a_part_of_the_trickle_where_the_store_never_answered() {
    let store = Fake::new(100);
    store.set(Does::Hang);
    let budget = budget(&store);
    assert!(!spend(&budget).await, "nothing to begin with");
    sleep(Duration::from_secs(9)).await;
    assert!(!spend(&budget).await);
    sleep(Duration::from_millis(1100)).await;
    assert!(spend(&budget).await, "a tenth of one a second");
    assert!(!spend(&budget).await);
}

#[tokio::test(start_paused = true)]
async fn probes_ever_more_slowly_with_one_key_for_all() {
    let store = Fake::new(8);
    let budget = budget(&store);
    for n in 0..20 {
        sync(&budget, &Key::new(format!("k{n}"))).await;
    }
    store.set(Does::Refuse);
    for n in 0..20 {
        budget.deposit(&Key::new(format!("k{n}")), true, clock::now());
    }
    sleep(Duration::from_secs(2)).await;
    let begun = store.calls().len();
    sleep(Duration::from_secs(60)).await;
    let probes = store.calls().split_off(begun);
    assert!((27..=31).contains(&probes.len()), "{}", probes.len());
    for pair in probes[1..].windows(2) {
        let wait = pair[1].0 - pair[0].0;
        assert!(wait <= 2210 * MS && wait >= 2000 * MS, "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn doubles_the_time_between_probes() {
    let store = Fake::new(8);
    store.set(Does::Refuse);
    let budget = budget(&store);
    sync(&budget, &KEY).await;
    let calls = store.calls();
    let waits: Vec<_> = calls.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    for (wait, least) in waits.iter().zip([100, 200, 400, 800]) {
        let least = least * MS;
        assert!(
            *wait >= least && *wait <= least.mul_f32(1.1) + MS,
            "{waits:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn is_back_with_all_keys_within_two_intervals_of_the_first_answer() {
    let store = Fake::new(8);
    store.set(Does::Refuse);
    let budget = budget(&store);
    let keys: Vec<_> = (0..20).map(|n| Key::new(format!("k{n}"))).collect();
    for key in &keys {
        budget.deposit(key, true, clock::now());
    }
    sleep(Duration::from_secs(30)).await;
    let begun = store.calls().len();
    store.set(Does::Answer);
    while store.calls().len() == begun {
        sleep(MS).await;
    }
    // Until the first answer keys have the interval of new ones.
    sleep(2 * crate::budget::redis::pace::FIRST).await;
    for key in &keys {
        assert_eq!(mode(&budget, key), Some(StoreMode::Fleet), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn tells_again_what_was_refused_and_repeats_what_may_have_arrived() {
    let store = Fake::new(8);
    let budget = budget(&store);
    sync(&budget, &KEY).await;
    let told = |store: &Fake| -> u64 {
        let calls = store.calls();
        let attempts = calls.iter().map(|(.., call)| call.report.attempts);
        attempts.sum()
    };
    assert_eq!(told(&store), 1);
    store.set(Does::LoseReply);
    sync(&budget, &KEY).await;
    let calls = store.calls();
    let [.., first, again] = &calls[..] else {
        panic!("it was repeated");
    };
    assert_eq!((first.2, again.2.report.attempts), (again.2, 1));
    store.set(Does::Answer);
    sleep(Duration::from_secs(5)).await;
    budget.deposit(&KEY, true, clock::now());
    store.set(Does::Refuse);
    sleep(Duration::from_secs(1)).await;
    store.set(Does::Answer);
    sleep(Duration::from_secs(5)).await;
    let last = store.calls();
    let (refused, told): (Vec<_>, Vec<_>) = last[calls.len()..]
        .iter()
        .filter(|(.., call)| call.report.attempts == 1)
        .map(|(.., call)| call.sequence)
        .partition(|sequence| *sequence == first.2.sequence + 1);
    assert_eq!(
        (refused.len(), told.last()),
        (1, Some(&told[told.len() - 1]))
    );
    assert!(
        told.iter().any(|sequence| *sequence > refused[0]),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn counts_what_was_earned_once_whatever_replies_are_lost() {
    let store = Fake::new(0);
    let budget = budget(&store);
    for round in 0..40 {
        store.set(match round % 4 {
            0 => Does::LoseReply,
            1 => Does::Refuse,
            _ => Does::Answer,
        });
        for _ in 0..10 {
            budget.deposit(&KEY, false, clock::now());
        }
        sleep(Duration::from_millis(700)).await;
    }
    store.set(Does::Answer);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(store.balance(), 400 * TOKEN / 5);
}

#[tokio::test(start_paused = true)]
async fn pays_all_that_it_spent_in_a_long_silence() {
    let store = Fake::new(80);
    let budget = budget(&store);
    sync(&budget, &KEY).await;
    store.set(Does::Hang);
    let mut spent = 0;
    for _ in 0..120 {
        spent += u64::from(spend(&budget).await);
        sleep(Duration::from_secs(1)).await;
    }
    // Its half of 80, and of a token a second.
    assert!((95..=105).contains(&spent), "{spent}");
    store.set(Does::Answer);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(mode(&budget, &KEY), Some(StoreMode::Fleet));
    let owed: u64 = store
        .calls()
        .iter()
        .map(|(.., call)| (call.sequence, call.report.owed.balance))
        .collect::<std::collections::BTreeMap<_, _>>()
        .into_values()
        .sum();
    assert_eq!(owed, spent * TOKEN);
}

#[tokio::test(start_paused = true)]
async fn does_not_spend_its_share_anew_before_it_has_paid() {
    let store = Fake::new(8);
    let budget = budget_by(&TokenBudget::builder().cap(100).no_trickle(), &store);
    sync(&budget, &KEY).await;
    store.set(Does::Hang);
    let mut spent = 0;
    while spend(&budget).await {
        spent += 1;
    }
    assert_eq!(spent, 4);
    // A probe is answered, and the store is gone again before anything was told.
    store.set(Does::Answer);
    while mode(&budget, &KEY) != Some(StoreMode::Fleet) {
        sleep(MS).await;
    }
    store.set(Does::Hang);
    sleep(300 * MS).await;
    assert!(!spend(&budget).await);
}

#[tokio::test(start_paused = true)]
async fn pays_with_a_lease_that_comes_late_what_it_spent_meanwhile() {
    let store = Fake::with(1, 8);
    let budget = budget_by(&TokenBudget::builder().cap(100).no_trickle(), &store);
    sync(&budget, &KEY).await;
    store.set(Does::LoseReply);
    let mut spent = 0;
    for _ in 0..10 {
        spent += u64::from(spend(&budget).await);
    }
    store.set(Does::Answer);
    for _ in 0..400 {
        spent += u64::from(spend(&budget).await);
        sleep(50 * MS).await;
    }
    assert_eq!(spent, 8);
}

#[tokio::test(start_paused = true)]
async fn earns_no_more_in_a_silence_than_its_share_can_hold() {
    let store = Fake::with(1, 100);
    let budget = budget_by(&TokenBudget::builder().cap(100).no_trickle(), &store);
    sync(&budget, &KEY).await;
    store.set(Does::Refuse);
    sync(&budget, &KEY).await;
    // Full of the hundred that there were.
    for _ in 0..50 {
        budget.deposit(&KEY, false, clock::now());
    }
    assert!(spend(&budget).await);
    for _ in 0..50 {
        budget.deposit(&KEY, false, clock::now());
    }
    store.set(Does::Answer);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(mode(&budget, &KEY), Some(StoreMode::Fleet));
    assert_eq!(store.balance(), 100 * TOKEN);
}
