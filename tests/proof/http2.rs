//! A refused stream and a GOAWAY below the stream are proof; any other end of a stream is none.

use crate::{
    get, post,
    support::{
        client::{bounded, http, layer, quick},
        h2::{Streams, Turn},
        info,
        origin::Version,
        send,
    },
};
use h2::Reason;
use tower::Layer;

const IN_FLIGHT: [Reason; 3] = [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR];

fn twice(body: &str) -> [Option<String>; 2] {
    [Some(body.to_owned()), Some(body.to_owned())]
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_with_the_same_body_whatever_its_method() {
    let streams = Streams::take([Turn::Reset(Reason::REFUSED_STREAM)]).await;
    let service = layer(quick()).layer(http(Version::Http2));
    let response = bounded(send(&service, post(&streams.uri()))).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(info(&response).attempts, 2);
    assert_eq!(streams.bodies(), twice("abc"));
}

#[tokio::test]
async fn a_stream_that_is_refused_before_its_body_was_read_is_sent_again_whole() {
    let streams = Streams::take([Turn::ResetUnread(Reason::REFUSED_STREAM)]).await;
    let service = layer(quick()).layer(http(Version::Http2));
    let response = bounded(send(&service, post(&streams.uri()))).await;
    assert_eq!(response.expect("a response").status(), 200);
    assert_eq!(streams.bodies(), [None, Some("abc".to_owned())]);
}

#[tokio::test]
async fn a_post_that_is_reset_in_flight_is_not_repeated() {
    for reason in IN_FLIGHT {
        let streams = Streams::take([Turn::Reset(reason)]).await;
        let service = layer(quick()).layer(http(Version::Http2));
        let result = bounded(send(&service, post(&streams.uri()))).await;
        assert!(result.is_err(), "{reason:?}");
        assert_eq!(streams.count(), 1, "{reason:?}");
    }
}

#[tokio::test]
async fn a_get_that_is_reset_in_flight_is_repeated() {
    for reason in IN_FLIGHT {
        let streams = Streams::take([Turn::Reset(reason)]).await;
        let service = layer(quick()).layer(http(Version::Http2));
        let response = bounded(send(&service, get(&streams.uri()))).await;
        assert_eq!(response.expect("a response").status(), 200, "{reason:?}");
        assert_eq!(streams.count(), 2, "{reason:?}");
    }
}

#[tokio::test]
async fn a_stream_above_the_last_one_of_a_goaway_is_sent_again_whatever_its_method() {
    let streams = Streams::go_away(0, None).await;
    let service = layer(quick()).layer(http(Version::Http2));
    let response = bounded(send(&service, post(&streams.uri()))).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(info(&response).attempts, 2);
    assert_eq!(streams.bodies(), twice("abc"));
}

#[tokio::test]
async fn a_goaway_that_leaves_the_stream_in_doubt_is_no_proof() {
    // The connection ends without an answer, or a reset without an error ends the stream first.
    for reset in [None, Some(Reason::NO_ERROR), Some(Reason::CANCEL)] {
        let streams = Streams::go_away(1, reset).await;
        let service = layer(quick()).layer(http(Version::Http2));
        let result = bounded(send(&service, post(&streams.uri()))).await;
        assert!(result.is_err(), "{reset:?}");
        assert_eq!(streams.count(), 1, "{reset:?}");

        let streams = Streams::go_away(1, reset).await;
        let service = layer(quick()).layer(http(Version::Http2));
        let response = bounded(send(&service, get(&streams.uri()))).await;
        assert_eq!(response.expect("a response").status(), 200, "{reset:?}");
        assert_eq!(streams.count(), 2, "{reset:?}");
    }
}
