//! Servers that refuse, reset and abandon HTTP/2 streams.

use super::SECOND;
use bytes::Bytes;
use h2::{Reason, server};
use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// What becomes of one stream.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    Status(u16),
    /// A reset once the whole request has arrived.
    Reset(Reason),
    /// A reset before its body was read.
    ResetUnread(Reason),
}

/// A server. It stops when it is dropped, and after some seconds in any case.
pub struct Streams {
    address: SocketAddr,
    log: Log,
    task: JoinHandle<()>,
}

/// The bodies of the requests that came; `None` where one was not read.
type Log = Arc<Mutex<Vec<Option<String>>>>;

impl Streams {
    /// Treats the streams that come one after the other so, and answers the others with 200.
    pub async fn take(turns: impl IntoIterator<Item = Turn>) -> Self {
        let turns: VecDeque<_> = turns.into_iter().collect();
        let turns = Arc::new(Mutex::new(turns));
        Self::serve(move |stream, log| streams(stream, log, Arc::clone(&turns))).await
    }

    /// Ends its first connection with a GOAWAY once a request has arrived: what of it counts as
    /// processed, and how its stream is then reset, if it is. Answers on the others with 200.
    pub async fn go_away(last_stream: u32, reset: Option<Reason>) -> Self {
        let first = Arc::new(Mutex::new(Some((last_stream, reset))));
        Self::serve(move |stream, log| {
            let end = first.lock().expect("no panic").take();
            async move { _ = frames(stream, log, end).await }
        })
        .await
    }

    async fn serve<F, T>(serve: F) -> Self
    where
        F: Fn(TcpStream, Log) -> T + Send + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let log = Log::default();
        let seen = Arc::clone(&log);
        let accept = async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                _ = stream.set_nodelay(true);
                connections.spawn(serve(stream, Arc::clone(&seen)));
            }
        };
        let task = tokio::spawn(async move {
            _ = tokio::time::timeout(10 * SECOND, accept).await;
        });
        Self { address, log, task }
    }

    pub fn uri(&self) -> String {
        format!("http://{}/find?q=1", self.address)
    }

    pub fn bodies(&self) -> Vec<Option<String>> {
        self.log.lock().expect("no panic").clone()
    }

    pub fn count(&self) -> usize {
        self.bodies().len()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn streams(stream: TcpStream, log: Log, turns: Arc<Mutex<VecDeque<Turn>>>) {
    let Ok(mut connection) = server::handshake(stream).await else {
        return;
    };
    let mut requests = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        let turn = turns.lock().expect("no panic").pop_front();
        let turn = turn.unwrap_or(Turn::Status(200));
        requests.spawn(answer(request.into_body(), respond, turn, Arc::clone(&log)));
    }
}

async fn answer(
    body: h2::RecvStream,
    mut respond: server::SendResponse<Bytes>,
    turn: Turn,
    log: Log,
) -> Result<(), h2::Error> {
    if let Turn::ResetUnread(reason) = turn {
        log.lock().expect("no panic").push(None);
        respond.send_reset(reason);
        return Ok(());
    }
    let body = read(body).await?;
    log.lock().expect("no panic").push(Some(body));
    match turn {
        Turn::Reset(reason) | Turn::ResetUnread(reason) => respond.send_reset(reason),
        Turn::Status(status) => {
            let response = http::Response::builder().status(status).body(());
            respond.send_response(response.expect("a valid response"), true)?;
        }
    }
    Ok(())
}

async fn read(mut body: h2::RecvStream) -> Result<String, h2::Error> {
    let mut read = String::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        read.push_str(std::str::from_utf8(&data).expect("text"));
    }
    Ok(read)
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// `:status: 200`, by its place in the static table of HPACK.
const OK: [u8; 1] = [0x88];

/// Speaks frame by frame, because no library sends a GOAWAY that leaves out a stream it has seen.
async fn frames(
    mut stream: TcpStream,
    log: Log,
    mut end: Option<(u32, Option<Reason>)>,
) -> io::Result<()> {
    stream.read_exact(&mut [0; 24]).await?;
    send(&mut stream, SETTINGS, 0, 0, &[]).await?;
    let mut body = Vec::new();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).await?;
        let id = u32::from_be_bytes(id);
        match kind {
            SETTINGS if flags & ACK == 0 => send(&mut stream, SETTINGS, ACK, 0, &[]).await?,
            PING if flags & ACK == 0 => send(&mut stream, PING, ACK, 0, &payload).await?,
            DATA => body.extend_from_slice(&payload),
            _ => {}
        }
        if !matches!(kind, DATA | HEADERS) || flags & END_STREAM == 0 {
            continue;
        }
        let whole = String::from_utf8(std::mem::take(&mut body)).expect("text");
        log.lock().expect("no panic").push(Some(whole));
        let Some((last_stream, reset)) = end.take() else {
            send(&mut stream, HEADERS, END_HEADERS | END_STREAM, id, &OK).await?;
            continue;
        };
        let mut away = last_stream.to_be_bytes().to_vec();
        away.extend(u32::from(Reason::NO_ERROR).to_be_bytes());
        send(&mut stream, GOAWAY, 0, 0, &away).await?;
        if let Some(reset) = reset {
            let code = u32::from(reset).to_be_bytes();
            send(&mut stream, RST_STREAM, 0, id, &code).await?;
        }
        return Ok(());
    }
}

async fn send(
    stream: &mut TcpStream,
    kind: u8,
    flags: u8,
    id: u32,
    payload: &[u8],
) -> io::Result<()> {
    let len = u32::try_from(payload.len()).map_err(io::Error::other)?;
    let [_, a, b, c] = len.to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags];
    frame.extend(id.to_be_bytes());
    frame.extend_from_slice(payload);
    stream.write_all(&frame).await
}
