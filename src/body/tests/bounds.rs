use super::*;

fn frames(len: usize, count: usize) -> Script {
    Script::new((0..count).map(|_| Step::Data(Bytes::from(vec![b'x'; len]))))
}

#[test]
fn over_the_limit_the_attempt_streams_on_and_nothing_is_kept() {
    let (mut body, mut replay, memory) = start(frames(1_000, 1_000).sized());
    let mut most = 0;
    let mut sent = 0;
    while sent < 1_000_000 {
        assert_eq!(body.size_hint().exact(), Some(1_000_000 - sent));
        sent += frame(&mut body).len() as u64;
        most = most.max(memory.in_use());
    }
    assert_eq!(most, 1_000);
    assert_eq!(memory.in_use(), 0);
    assert!(matches!(poll(&mut body), Poll::Ready(None)));
    assert!(!replay.prepare());
    assert!(matches!(
        poll(&mut replay.next(true)),
        Poll::Ready(Some(Err(_)))
    ));
}

#[test]
fn a_body_over_the_limit_is_sent_again_while_no_byte_of_it_was_read() {
    let (body, mut replay, memory) = start(frames(4_000, 2).sized());
    drop(body);
    let mut body = retry(&mut replay, false).expect("not read");
    assert_eq!(body.size_hint().exact(), Some(8_000));
    let mut body = match poll(&mut body) {
        Poll::Ready(Some(Ok(_))) => body,
        _ => panic!("no frame"),
    };
    assert!(!replay.prepare(), "read by now");
    assert_eq!(carry(&mut body).unwrap().data.len(), 4_000);
    assert_eq!(memory.in_use(), 0);
}

#[test]
fn a_body_of_exactly_the_limit_is_kept() {
    let (mut body, mut replay, _) = start(frames(LIMIT / 4, 4));
    assert_eq!(carry(&mut body).unwrap().data.len(), LIMIT);
    assert!(replay.prepare());
    let (mut body, mut replay, _) = start(frames(LIMIT / 4 + 1, 4));
    assert!(carry(&mut body).is_ok());
    assert!(!replay.prepare());
}

#[test]
fn nothing_is_kept_under_a_limit_of_nothing() {
    let memory = ReplayMemory::new(LIMIT);
    let (mut body, mut replay) = Replay::new(frames(1, 3), 0, &memory, None);
    assert!(replay.prepare());
    assert_eq!(carry(&mut body).unwrap().data, b"xxx");
    assert!(!replay.prepare());
}

#[test]
fn the_memory_of_the_layer_is_shared_and_given_back_exactly() {
    let memory = ReplayMemory::new(2_500);
    let mut calls: Vec<_> = (0..3)
        .map(|_| Replay::new(frames(1_000, 1), LIMIT, &memory, None))
        .collect();
    for (body, _) in &mut calls {
        assert_eq!(carry(body).unwrap().data.len(), 1_000);
    }
    let replayable: Vec<_> = calls.iter_mut().map(|call| call.1.prepare()).collect();
    assert_eq!(replayable, [true, true, false]);
    assert_eq!(memory.in_use(), 2_000);

    calls.remove(0);
    assert_eq!(memory.in_use(), 1_000);
    let (mut body, mut replay) = Replay::new(frames(1_000, 1), LIMIT, &memory, None);
    assert!(carry(&mut body).is_ok());
    assert!(replay.prepare());
    drop((body, replay, calls));
    assert_eq!(memory.in_use(), 0);
}

#[test]
fn trailers_count_as_memory_too() {
    let memory = ReplayMemory::new(3);
    let source = Script::new([data("abc"), Step::Trailers(trailers())]);
    let (mut body, mut replay) = Replay::new(source, LIMIT, &memory, None);
    assert_eq!(carry(&mut body).unwrap().trailers, Some(trailers()));
    assert!(!replay.prepare());
    assert_eq!(memory.in_use(), 0);
}

#[test]
fn a_released_body_streams_on_to_its_end_and_keeps_nothing() {
    let (mut body, replay, memory) = start(frames(100, 8));
    assert_eq!(frame(&mut body).len(), 100);
    assert_eq!(memory.in_use(), 100);
    drop(replay);
    assert_eq!(memory.in_use(), 0);
    assert_eq!(carry(&mut body).unwrap().data.len(), 700);
}

#[test]
fn a_body_released_in_the_middle_of_a_replay_is_freed_as_it_is_sent() {
    let steps = [600, 100, 100].map(|len| Step::Data(Bytes::from(vec![b'x'; len])));
    let steps = steps.into_iter().chain([Step::Trailers(trailers())]);
    let (mut body, mut replay, memory) = start(Script::new(steps));
    for _ in 0..3 {
        frame(&mut body);
    }
    let mut body = retry(&mut replay, false).unwrap();
    assert_eq!(frame(&mut body).len(), 600);
    replay.release();
    assert!(!replay.prepare());
    assert!(memory.in_use() <= LIMIT - 600, "the rest, in a block");
    let carried = carry(&mut body).unwrap();
    assert_eq!(
        (carried.data.len(), carried.trailers),
        (200, Some(trailers()))
    );
    assert_eq!(memory.in_use(), 0);
}

#[test]
fn an_old_handle_keeps_nothing_alive_once_the_call_is_over() {
    let source = frames(100, 8);
    let polls = source.polls();
    let (mut old, mut replay, memory) = start(source);
    frame(&mut old);
    replay.supersede();
    drop(replay);
    assert_eq!(memory.in_use(), 0);
    assert_eq!(Arc::strong_count(&polls), 1, "the source is gone");

    let source = frames(100, 8);
    let polls = source.polls();
    let (mut old, mut replay, memory) = start(source);
    frame(&mut old);
    let new = retry(&mut replay, false).unwrap();
    drop(replay);
    drop(new);
    assert_eq!(memory.in_use(), 0);
    assert_eq!(Arc::strong_count(&polls), 1, "the source is gone");
    drop(old);
}

#[test]
fn a_call_that_cannot_be_retried_frees_the_source_with_its_body() {
    let source = frames(2_000, 2);
    let polls = source.polls();
    let (mut body, mut replay, _) = start(source);
    frame(&mut body);
    drop(body);
    assert_eq!(Arc::strong_count(&polls), 1);
    assert!(!replay.prepare());
}
