use super::*;
use crate::body::{BodyFactory, Superseded};
use http_body_util::Full;

#[test]
fn takes_a_body_of_one_frame_again_and_again() {
    let source = Script::new([data("abc")]).sized().knowing_its_end();
    let (mut body, mut replay, memory) = start(source);
    for _ in 0..2 {
        assert_eq!(body.take_whole().unwrap(), "abc");
        assert!(body.is_end_stream());
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
        body = retry(&mut replay, false).unwrap();
    }
    let mut body = retry(&mut replay, true).unwrap();
    assert_eq!(body.take_whole().unwrap(), "abc");
    assert_eq!(memory.in_use(), 0);
}

#[test]
fn takes_an_empty_body() {
    assert!(
        ReplayBody::<Script>::default()
            .take_whole()
            .unwrap()
            .is_empty()
    );
    let mut body = ReplayBody::direct(Script::new([]).knowing_its_end());
    assert!(body.take_whole().unwrap().is_empty());
    let (mut body, _replay, _) = start(Script::new([]).sized());
    assert!(body.take_whole().unwrap().is_empty());
}

/// `take_whole` says no, and the attempts still carry everything.
fn assert_put_back(source: fn() -> Script, expected: &str, with_trailers: bool) {
    let (mut body, mut replay, _) = start(source());
    let mut direct = ReplayBody::direct(source());
    assert_eq!(direct.take_whole(), None);
    let carried = carry(&mut direct).unwrap();
    assert_eq!(carried.data, expected.as_bytes());
    assert_eq!(carried.trailers, with_trailers.then(trailers));
    for last in [false, true] {
        assert_eq!(body.take_whole(), None);
        assert_eq!(body.take_whole(), None);
        let carried = carry(&mut body).unwrap();
        assert_eq!(carried.data, expected.as_bytes());
        assert_eq!(carried.trailers, with_trailers.then(trailers));
        body = retry(&mut replay, last).unwrap();
    }
}

#[test]
fn puts_back_what_is_not_all() {
    assert_put_back(
        || Script::new([data("abc"), data("def")]).sized(),
        "abcdef",
        false,
    );
    assert_put_back(
        || Script::new([data(""), data("def"), data("g")]).sized(),
        "defg",
        false,
    );
}

#[test]
fn puts_nothing_back_when_nothing_comes_yet() {
    let (mut body, mut replay, _) = start(Script::new([Step::Pending, data("abc")]).sized());
    assert_eq!(body.take_whole(), None);
    assert_eq!(carry(&mut body).unwrap().data, b"abc");
    assert!(replay.prepare());
}

#[test]
fn takes_nothing_that_may_have_trailers_or_has_no_length() {
    assert_put_back(
        || Script::new([data("abc"), Step::Trailers(trailers())]).sized(),
        "abc",
        true,
    );
    assert_put_back(
        || Script::new([Step::Trailers(trailers())]).sized(),
        "",
        true,
    );
    let source = Script::new([data("abc")]);
    let polls = source.polls();
    let (mut body, _replay, _) = start(source);
    assert_eq!(body.take_whole(), None);
    assert_eq!(polls.load(Ordering::Relaxed), 0);
}

#[test]
fn puts_back_an_error() {
    let mut source = Script::new([Step::Fail]);
    source.exact = Some(3);
    let (mut body, mut replay, _) = start(source);
    assert_eq!(body.take_whole(), None);
    assert!(!replay.prepare());
    assert_eq!(error_of(&mut body).to_string(), "the source failed");
}

#[test]
fn does_not_touch_a_stream_over_the_limit() {
    let source = Script::new([data(&"x".repeat(2 * LIMIT))]).sized();
    let polls = source.polls();
    let (mut body, mut replay, _) = start(source);
    assert_eq!(body.take_whole(), None);
    assert_eq!(polls.load(Ordering::Relaxed), 0);
    assert!(replay.prepare());
}

#[test]
fn takes_a_body_known_to_be_in_memory_whatever_its_size() {
    let large = Bytes::from(vec![b'x'; 2 * LIMIT]);
    let memory = ReplayMemory::new(1 << 20);
    let (mut body, mut replay) = Replay::new(Full::new(large.clone()), LIMIT, &memory, None);
    assert!(replay.prepare());
    assert_eq!(body.take_whole(), Some(large.clone()));
    assert!(!replay.prepare(), "it was read, and is over the limit");

    let huge = Bytes::from(vec![b'x'; 100_000]);
    let mut body = ReplayBody::direct(Full::new(huge.clone()));
    assert_eq!(body.take_whole(), Some(huge.clone()));
    assert!(body.is_end_stream());
    let mut body = ReplayBody::direct(axum::body::Body::from(huge));
    assert_eq!(body.take_whole(), None, "of unknown origin, and large");
    let mut body = ReplayBody::direct(axum::body::Body::from(large.clone()));
    assert_eq!(body.take_whole(), Some(large));
}

#[cfg(feature = "reqwest")]
#[test]
fn takes_reqwests_own_body_whatever_its_size() {
    let large = vec![b'x'; 100_000];
    let mut body = ReplayBody::direct(reqwest::Body::from(large.clone()));
    assert_eq!(body.take_whole().unwrap(), large);
    assert!(body.is_end_stream());
    let memory = ReplayMemory::new(1 << 20);
    let source = reqwest::Body::from(large.clone());
    let (mut body, mut replay) = Replay::new(source, LIMIT, &memory, None);
    assert_eq!(body.take_whole().unwrap(), large);
    assert!(!replay.prepare());
}

#[test]
fn takes_nothing_for_a_superseded_attempt() {
    let (mut body, mut replay, _) = start(Script::new([data("abc")]).sized().knowing_its_end());
    replay.supersede();
    assert_eq!(body.take_whole(), None);
    assert!(error_of(&mut body).is::<Superseded>());
}

#[test]
fn reads_nothing_ahead_of_a_body_that_can_be_cut_off() {
    let source = Script::new([data("abc")]).sized();
    let polls = source.polls();
    let factory = BodyFactory::new(|| Ok::<_, BoxError>(Script::default()));
    let memory = ReplayMemory::new(LIMIT);
    let (mut body, _replay) = Replay::new(source, LIMIT, &memory, Some(factory));
    assert_eq!(body.take_whole(), None);
    assert_eq!(polls.load(Ordering::Relaxed), 0);
}
