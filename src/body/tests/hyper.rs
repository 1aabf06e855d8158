//! A real HTTP/1.1 connection at the other end of the body.

use super::*;
use ::hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Gives one frame, then nothing for ever, and wakes nobody.
struct Stuck(Option<Bytes>, Arc<AtomicUsize>);

impl Body for Stuck {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        match self.0.take() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Poll::Pending,
        }
    }
}

async fn read_until(server: &mut DuplexStream, end: &str) -> String {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).ends_with(end) {
        read.push(server.read_u8().await.unwrap());
    }
    String::from_utf8(read).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_still_holds_the_body_lets_go_of_it() {
    let polls = Arc::<AtomicUsize>::default();
    let source = Stuck(Some(Bytes::from_static(b"abc")), Arc::clone(&polls));
    let memory = ReplayMemory::new(LIMIT);
    let (body, mut replay) = Replay::new(source, LIMIT, &memory, None);

    let (client, mut server) = tokio::io::duplex(1024);
    let (mut sender, connection) = http1::handshake(TokioIo::new(client)).await.unwrap();
    let connection = tokio::spawn(connection);
    let response = tokio::spawn(sender.send_request(http::Request::put("/").body(body).unwrap()));
    read_until(&mut server, "3\r\nabc\r\n").await;
    server
        .write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(response.await.unwrap().unwrap().status(), 503);
    assert!(!connection.is_finished(), "it still holds the body");

    let before = polls.load(Ordering::Relaxed);
    assert!(replay.prepare());
    replay.supersede();
    let ended = tokio::time::timeout(Duration::from_secs(1), connection).await;
    assert!(ended.is_ok(), "nobody woke the connection");
    assert_eq!(polls.load(Ordering::Relaxed), before);
    assert_eq!(frame(&mut replay.next(true)), "abc");
}

#[tokio::test(start_paused = true)]
async fn attempts_have_the_same_length_or_the_same_lack_of_one_on_the_wire() {
    let steps = || Script::new([data("abc"), data("def")]);
    for source in [steps().sized(), steps()] {
        let sized = source.exact.is_some();
        let (mut body, mut replay, _) = start(source);
        for _ in 0..3 {
            let (client, mut server) = tokio::io::duplex(1024);
            let (mut sender, connection) = http1::handshake(TokioIo::new(client)).await.unwrap();
            tokio::spawn(connection);
            let request = http::Request::put("/").body(std::mem::take(&mut body));
            let response = tokio::spawn(sender.send_request(request.unwrap()));
            let head = read_until(&mut server, "\r\n\r\n").await;
            assert_eq!(head.contains("content-length: 6"), sized, "{head}");
            assert_eq!(
                head.contains("transfer-encoding: chunked"),
                !sized,
                "{head}"
            );
            let end = if sized { "abcdef" } else { "0\r\n\r\n" };
            read_until(&mut server, end).await;
            server
                .write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
                .await
                .unwrap();
            assert_eq!(response.await.unwrap().unwrap().status(), 503);
            body = retry(&mut replay, false).unwrap();
        }
    }
}
