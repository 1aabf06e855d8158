use super::*;
use crate::body::{BodyFactory, Superseded};
use http_body_util::Full;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Three attempts carry the same: one that reads the source, one that replays, and the last.
fn assert_three_alike(source: Script, expected: &str, with_trailers: bool) {
    let exact = source.size_hint().exact();
    let (mut body, mut replay, memory) = start(source);
    for last in [false, true] {
        assert_eq!(body.size_hint().exact(), exact);
        let carried = carry(&mut body).unwrap();
        assert_eq!(carried.data, expected.as_bytes());
        assert_eq!(carried.trailers, with_trailers.then(trailers));
        assert!(matches!(poll(&mut body), Poll::Ready(None)), "stays over");
        body = retry(&mut replay, last).expect("replayable");
    }
    assert_eq!(body.size_hint().exact(), exact);
    let carried = carry(&mut body).unwrap();
    assert_eq!(carried.data, expected.as_bytes());
    assert_eq!(carried.trailers, with_trailers.then(trailers));
    assert_eq!(memory.in_use(), 0, "the last attempt keeps nothing");
}

#[test]
fn carries_a_body_of_known_length_again() {
    let source = Script::new([data("abc"), data("defg")]).sized();
    assert_three_alike(source, "abcdefg", false);
}

#[test]
fn carries_a_body_of_unknown_length_again_without_giving_it_one() {
    let source = Script::new([data("abc"), Step::Pending, data("defg"), Step::Pending]);
    assert_three_alike(source, "abcdefg", false);
}

#[test]
fn carries_a_single_frame_again() {
    let source = Script::new([data("abc")]).sized().knowing_its_end();
    assert_three_alike(source, "abc", false);
}

#[test]
fn carries_trailers_again_any_number_of_times() {
    for sized in [true, false] {
        let mut source = Script::new([data("abc"), Step::Trailers(trailers())]);
        if sized {
            source = source.sized();
        }
        assert_three_alike(source, "abc", true);
    }
    assert_three_alike(Script::new([Step::Trailers(trailers())]), "", true);
}

#[test]
fn carries_single_bytes_and_empty_frames_again() {
    let bytes = (0..600).flat_map(|_| [data("x"), data(""), Step::Pending]);
    assert_three_alike(Script::new(bytes), &"x".repeat(600), false);
}

#[test]
fn carries_nothing_again_when_the_end_comes_without_a_frame() {
    assert_three_alike(Script::new([]), "", false);
    assert_three_alike(Script::new([data("")]).sized(), "", false);
}

#[test]
fn an_empty_body_is_not_read_at_all() {
    let source = Script::new([]).knowing_its_end();
    let polls = source.polls();
    let (mut body, mut replay, _) = start(source);
    for _ in 0..3 {
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
        assert_eq!(carry(&mut body).unwrap(), Carried::default());
        body = retry(&mut replay, false).expect("replayable");
    }
    assert_eq!(polls.load(Ordering::Relaxed), 0);
}

#[test]
fn a_frame_of_another_buffer_type_becomes_bytes() {
    let chained = bytes::Buf::chain(&b"abc"[..], &b"def"[..]);
    let memory = ReplayMemory::new(LIMIT);
    let (mut body, mut replay) = Replay::new(Full::new(chained), LIMIT, &memory, None);
    assert_eq!(carry(&mut body).unwrap().data, b"abcdef");
    assert!(replay.prepare());
    assert_eq!(carry(&mut replay.next(false)).unwrap().data, b"abcdef");
}

#[test]
fn goes_on_reading_where_an_attempt_stopped() {
    let source = Script::new([data("abc"), data("def"), data("ghi")]).sized();
    let polls = source.polls();
    let (mut body, mut replay, _) = start(source);
    assert_eq!(frame(&mut body), "abc");
    let mut body = retry(&mut replay, false).unwrap();
    assert_eq!(body.size_hint().exact(), Some(9));
    assert_eq!(frame(&mut body), "abc");
    assert_eq!(polls.load(Ordering::Relaxed), 1, "a replay reads nothing");
    assert_eq!(frame(&mut body), "def");
    let mut body = retry(&mut replay, true).unwrap();
    assert_eq!(carry(&mut body).unwrap().data, b"abcdefghi");
}

#[test]
fn keeps_the_length_when_the_source_forgets_to_count_it_down() {
    struct Stubborn(Script);
    impl Body for Stubborn {
        type Data = Bytes;
        type Error = &'static str;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            Pin::new(&mut self.0).poll_frame(cx)
        }
        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(6)
        }
    }
    let memory = ReplayMemory::new(LIMIT);
    let source = Stubborn(Script::new([data("abc"), data("def")]));
    let (mut body, mut replay) = Replay::new(source, LIMIT, &memory, None);
    assert_eq!(frame(&mut body), "abc");
    assert!(replay.prepare());
    let mut body = replay.next(false);
    assert_eq!(body.size_hint().exact(), Some(6));
    assert_eq!(carry(&mut body).unwrap().data, b"abcdef");
}

#[test]
fn a_superseded_body_fails_and_its_task_is_woken() {
    let source = Script::new([data("abc"), Step::Pending, data("def")]);
    let polls = source.polls();
    let (mut old, mut replay, _) = start(source);
    let (woken, waker) = Woken::new();
    let mut cx = Context::from_waker(&waker);
    assert!(Pin::new(&mut old).poll_frame(&mut cx).is_ready());
    assert_eq!(woken.times(), 0);

    replay.supersede();
    assert_eq!(woken.times(), 1);
    assert!(!old.is_end_stream());
    assert!(error_of(&mut old).is::<Superseded>());
    // It never ends as if it were whole.
    assert!(!old.is_end_stream());
    error_of(&mut old);
    assert_eq!(polls.load(Ordering::Relaxed), 1, "read during the wait");

    let mut new = replay.next(true);
    assert_eq!(carry(&mut new).unwrap().data, b"abcdef");
    assert_eq!(woken.times(), 1);
}

#[test]
fn a_superseded_body_fails_although_the_next_one_is_there() {
    let (mut first, mut replay, _) = start(Script::new([data("abc"), data("def")]));
    assert_eq!(frame(&mut first), "abc");
    let mut second = retry(&mut replay, false).unwrap();
    assert_eq!(frame(&mut second), "abc");
    assert!(error_of(&mut first).is::<Superseded>());
    let mut third = retry(&mut replay, false).unwrap();
    drop(first);
    drop(second);
    assert_eq!(carry(&mut third).unwrap().data, b"abcdef");
}

#[test]
fn an_error_of_the_source_is_the_attempts_own_and_ends_the_retries() {
    let source = Script::new([data("abc"), Step::Fail]).sized();
    let (mut body, mut replay, memory) = start(source);
    assert_eq!(frame(&mut body), "abc");
    assert!(replay.prepare());
    assert_eq!(error_of(&mut body).to_string(), "the source failed");
    error_of(&mut body);
    assert!(!replay.prepare());
    assert_eq!(memory.in_use(), 0);
    assert!(!error_of(&mut replay.next(false)).is::<Superseded>());
}

#[test]
fn a_source_that_ends_before_its_length_is_not_taken_for_whole() {
    for knows_its_end in [false, true] {
        let mut source = Script::new([data("0123456789")]);
        source.exact = Some(20);
        source.knows_its_end = knows_its_end;
        let (mut body, mut replay, _) = start(source);
        assert_eq!(frame(&mut body), "0123456789");
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
        assert!(!replay.prepare());
        let mut body = replay.next(true);
        assert!(!body.is_end_stream());
        assert!(matches!(poll(&mut body), Poll::Ready(Some(Err(_)))));
    }
}

#[test]
fn a_source_that_panics_leaves_the_cell_usable_and_ends_the_retries() {
    let (mut body, mut replay, memory) = start(Script::new([data("abc"), Step::Panic]));
    assert_eq!(frame(&mut body), "abc");
    let panicked = catch_unwind(AssertUnwindSafe(|| poll(&mut body).is_ready()));
    assert!(panicked.is_err());
    assert!(!replay.prepare());
    assert!(!body.is_end_stream());
    assert!(matches!(poll(&mut body), Poll::Ready(Some(Err(_)))));
    replay.release();
    drop(body);
    assert_eq!(memory.in_use(), 0);
}

#[test]
fn a_direct_body_passes_through() {
    let source = Script::new([data("abc"), Step::Trailers(trailers())]).sized();
    let mut body = ReplayBody::direct(source);
    let carried = carry(&mut body).unwrap();
    assert_eq!(
        (carried.data, carried.trailers),
        (b"abc".to_vec(), Some(trailers()))
    );
    let mut body = ReplayBody::direct(Script::new([Step::Fail]));
    assert_eq!(error_of(&mut body).to_string(), "the source failed");
}

#[test]
fn the_default_is_empty_and_debug_shows_no_contents() {
    let mut body = ReplayBody::<Script>::default();
    assert!(body.is_end_stream());
    assert!(matches!(poll(&mut body), Poll::Ready(None)));
    let (body, _replay, _) = start(Script::new([data("secret")]));
    assert_eq!(format!("{body:?}"), "ReplayBody::Buffered(..)");
}

fn counted_factory(made: &Arc<AtomicUsize>) -> BodyFactory {
    let made = Arc::clone(made);
    BodyFactory::new(move || match made.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => Ok(Script::new([data("abc"), data("def")]).sized()),
        _ => Err("the file is gone"),
    })
}

#[test]
fn a_factory_makes_each_body_at_the_decision_and_keeps_nothing() {
    let made = Arc::default();
    let memory = ReplayMemory::new(LIMIT);
    let source = Script::new([data("abc"), data("def")]).sized();
    let (mut first, mut replay) = Replay::new(source, 0, &memory, Some(counted_factory(&made)));
    assert_eq!(frame(&mut first), "abc");
    assert_eq!(made.load(Ordering::Relaxed), 0);

    assert!(replay.prepare());
    assert!(replay.prepare());
    assert_eq!(made.load(Ordering::Relaxed), 1, "made once, and kept");
    let mut second = retry(&mut replay, false).unwrap();
    assert_eq!(carry(&mut second).unwrap().data, b"abcdef");
    let mut third = retry(&mut replay, true).unwrap();
    assert_eq!(carry(&mut third).unwrap().data, b"abcdef");
    assert_eq!(made.load(Ordering::Relaxed), 2);
    assert_eq!(memory.in_use(), 0);

    assert!(!replay.prepare(), "the factory fails");
    assert!(matches!(
        poll(&mut replay.next(true)),
        Poll::Ready(Some(Err(_)))
    ));
}

#[test]
fn a_body_of_a_factory_is_cut_off_by_the_next_one() {
    let made = Arc::default();
    let memory = ReplayMemory::new(LIMIT);
    let source = Script::new([data("abc"), Step::Pending, data("def")]);
    let (mut first, mut replay) = Replay::new(source, 0, &memory, Some(counted_factory(&made)));
    let (woken, waker) = Woken::new();
    let mut cx = Context::from_waker(&waker);
    assert!(Pin::new(&mut first).poll_frame(&mut cx).is_ready());
    assert!(replay.prepare());
    replay.supersede();
    assert_eq!(woken.times(), 1);
    assert!(error_of(&mut first).is::<Superseded>());
    // It never ends as if it were whole.
    error_of(&mut first);
    assert_eq!(carry(&mut replay.next(false)).unwrap().data, b"abcdef");
}

#[test]
fn a_factory_of_another_type_is_not_used() {
    let factory = BodyFactory::new(|| Ok::<_, BoxError>(Full::new(Bytes::new())));
    let memory = ReplayMemory::new(LIMIT);
    let source = Script::new([data("abc")]);
    let (mut body, mut replay) = Replay::new(source, LIMIT, &memory, Some(factory));
    assert_eq!(carry(&mut body).unwrap().data, b"abc");
    let mut body = retry(&mut replay, false).unwrap();
    assert_eq!(carry(&mut body).unwrap().data, b"abc");
}
