use super::*;
use proptest::{collection::vec, option, prelude::*};

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![4 => 0..4usize, 2 => 4..600usize, 1 => 600..3_000usize];
    prop_oneof![
        5 => (bytes, any::<u8>()).prop_map(|(len, byte)| Step::Data(vec![byte; len].into())),
        1 => Just(Step::Pending),
    ]
}

/// How one attempt but the last goes: polls before it is given up, and whether the client asked for
/// the whole body first.
fn attempt() -> impl Strategy<Value = (usize, bool)> {
    (0..12usize, any::<bool>())
}

fn expected(steps: &[Step], with_trailers: bool) -> Carried {
    let data = steps.iter().filter_map(|step| match step {
        Step::Data(data) => Some(data.to_vec()),
        _ => None,
    });
    Carried {
        data: data.collect::<Vec<_>>().concat(),
        trailers: with_trailers.then(trailers),
        frames: 0,
    }
}

/// Carries up to `polls` polls' worth, on top of what this attempt has carried already.
fn carry_on(body: &mut ReplayBody<Script>, polls: usize, carried: &mut Carried) {
    for _ in 0..polls {
        match poll(body) {
            Poll::Pending => {}
            Poll::Ready(None) => break,
            Poll::Ready(Some(frame)) => match frame.expect("no error").into_data() {
                Ok(data) => carried.data.extend_from_slice(&data),
                Err(frame) => carried.trailers = frame.into_trailers().ok(),
            },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_attempt_carries_the_same_or_is_not_made(
        steps in vec(step(), 0..20),
        with_trailers: bool,
        sized: bool,
        knows_its_end: bool,
        limit in prop_oneof![0..50usize, 50..20_000usize],
        memory in prop_oneof![0..10_000usize, Just(1 << 20)],
        attempts in vec(attempt(), 0..4),
        release_after in option::of(0..20usize),
    ) {
        let whole = expected(&steps, with_trailers);
        let trailers = with_trailers.then(|| Step::Trailers(trailers()));
        let mut source = Script::new(steps.into_iter().chain(trailers));
        if sized {
            source = source.sized();
        }
        if knows_its_end {
            source = source.knowing_its_end();
        }
        let exact = source.size_hint().exact();
        let memory = ReplayMemory::new(memory);
        let (mut body, mut replay) = Replay::new(source, limit, &memory, None);
        let mut carried = Carried::default();
        let mut old = Vec::new();
        for (n, (polls, ask)) in attempts.iter().enumerate() {
            if *ask {
                carried.data.extend(body.take_whole().unwrap_or_default());
            }
            carry_on(&mut body, *polls, &mut carried);
            prop_assert!(whole.data.starts_with(&carried.data));
            let kept = carried.data.len() <= limit;
            if !replay.prepare() {
                break;
            }
            prop_assert!(kept, "over the limit, and yet to be sent again");
            replay.supersede();
            let next = replay.next(n + 1 == attempts.len());
            old.push(std::mem::replace(&mut body, next));
            carried = Carried::default();
            if exact.is_some() {
                prop_assert_eq!(body.size_hint().exact(), exact);
            }
        }
        if let Some(polls) = release_after {
            carry_on(&mut body, polls, &mut carried);
            replay.release();
        }
        carry_on(&mut body, 1_000, &mut carried);
        prop_assert!(body.is_end_stream());
        prop_assert_eq!(&carried, &whole);
        drop((body, replay));
        prop_assert_eq!(memory.in_use(), 0);
        drop(old);
    }
}
