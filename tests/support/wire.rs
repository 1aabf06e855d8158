//! A server that speaks HTTP/1.1 byte by byte, by a script for each connection.

use super::SECOND;
use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpSocket, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// The server. It stops when it is dropped, and after some seconds in any case.
pub struct Wire {
    address: SocketAddr,
    log: Arc<Log>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Log {
    requests: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    open: AtomicUsize,
}

/// A request as it came over the wire.
#[derive(Clone, Debug)]
pub struct Received {
    /// The number of its connection; 1 is the first.
    pub connection: usize,
    /// The request line and the header lines, as they were written.
    pub head: String,
    pub body: Vec<u8>,
    /// The trailer lines, as they were written.
    pub trailers: String,
    /// Whether the body came to its end.
    pub whole: bool,
}

impl Received {
    pub fn method(&self) -> &str {
        self.head.split(' ').next().expect("a request line")
    }

    /// The values of all lines of a header.
    pub fn values(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let lines = lines.filter(|(line, _)| line.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| value).collect()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    fn is_chunked(&self) -> bool {
        self.values("transfer-encoding") == ["chunked"]
    }

    fn length(&self) -> u64 {
        let length = self.values("content-length");
        length
            .first()
            .map_or(0, |len| len.parse().expect("a length"))
    }
}

impl Wire {
    /// Lets `serve` speak on every connection. An error ends the connection, as does its return.
    pub async fn serve<F, T>(serve: F) -> Self
    where
        F: Fn(Conn) -> T + Send + 'static,
        T: Future<Output = io::Result<()>> + Send + 'static,
    {
        Refusing::new().listen(serve)
    }

    /// Gives these answers, one to each whole request, and keeps its connections open.
    pub async fn answers<A: Into<String>>(answers: impl IntoIterator<Item = A>) -> Self {
        let answers: Vec<String> = answers.into_iter().map(Into::into).collect();
        let answers = Arc::new((AtomicUsize::new(0), answers));
        Self::serve(move |mut conn| {
            let answers = Arc::clone(&answers);
            async move {
                while conn.request().await.is_ok() {
                    let next = answers.0.fetch_add(1, Ordering::SeqCst);
                    let answer = answers.1.get(next).cloned();
                    conn.send(&answer.unwrap_or_else(|| status(200))).await?;
                }
                Ok(())
            }
        })
        .await
    }

    pub fn uri(&self) -> String {
        format!("http://{}/find?q=1", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.log.connections.load(Ordering::SeqCst)
    }

    /// How many connections the server has not finished with.
    pub fn open(&self) -> usize {
        self.log.open.load(Ordering::SeqCst)
    }

    /// The requests that came, those that broke off included.
    pub fn requests(&self) -> Vec<Received> {
        self.log.requests().clone()
    }

    pub fn count(&self) -> usize {
        self.log.requests().len()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Log {
    fn requests(&self) -> MutexGuard<'_, Vec<Received>> {
        self.requests
            .lock()
            .expect("nobody panics while it is held")
    }
}

/// A port that nobody else can have, and that refuses connections until it is listened on.
pub struct Refusing(TcpSocket);

impl Refusing {
    #[allow(clippy::new_without_default, reason = "it takes a port")]
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        // A peer that stops reading is felt soon.
        socket
            .set_recv_buffer_size(64 * 1024)
            .expect("a small buffer");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(any).expect("a free port");
        Self(socket)
    }

    pub fn uri(&self) -> String {
        let address = self.0.local_addr().expect("an address");
        format!("http://{address}/find?q=1")
    }

    pub fn listen<F, T>(self, serve: F) -> Wire
    where
        F: Fn(Conn) -> T + Send + 'static,
        T: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = self.0.listen(64).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let log = Arc::<Log>::default();
        let accept = accept(listener, Arc::clone(&log), serve);
        let task = tokio::spawn(async move {
            _ = tokio::time::timeout(10 * SECOND, accept).await;
        });
        Wire { address, log, task }
    }
}

async fn accept<F, T>(listener: TcpListener, log: Arc<Log>, serve: F)
where
    F: Fn(Conn) -> T + Send + 'static,
    T: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        _ = stream.set_nodelay(true);
        log.open.fetch_add(1, Ordering::SeqCst);
        let conn = Conn {
            number: log.connections.fetch_add(1, Ordering::SeqCst) + 1,
            stream: BufReader::new(stream),
            log: Arc::clone(&log),
        };
        let served = serve(conn);
        let log = Arc::clone(&log);
        connections.spawn(async move {
            _ = served.await;
            log.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// One connection to the server.
pub struct Conn {
    /// 1 is the first.
    pub number: usize,
    stream: BufReader<TcpStream>,
    log: Arc<Log>,
}

impl Conn {
    /// Reads a request to its end, and notes it even when it breaks off.
    pub async fn request(&mut self) -> io::Result<Received> {
        let mut received = self.head().await?;
        let read = self.body(&mut received).await;
        received.whole = read.is_ok();
        self.log.requests().push(received.clone());
        read.map(|()| received)
    }

    /// Reads the head of a request, and does not note it.
    pub async fn head(&mut self) -> io::Result<Received> {
        Ok(Received {
            connection: self.number,
            head: self.lines().await?,
            body: Vec::new(),
            trailers: String::new(),
            whole: false,
        })
    }

    async fn body(&mut self, received: &mut Received) -> io::Result<()> {
        if !received.is_chunked() {
            let len = received.length();
            return self.read(len, &mut received.body).await;
        }
        loop {
            let size = self.line().await?;
            let size = u64::from_str_radix(size.trim_end(), 16).map_err(io::Error::other)?;
            if size == 0 {
                received.trailers = self.lines().await?;
                return Ok(());
            }
            self.read(size, &mut received.body).await?;
            self.line().await?;
        }
    }

    /// Reads exactly so many bytes.
    pub async fn read(&mut self, len: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let read = (&mut self.stream).take(len).read_to_end(into).await?;
        if (read as u64) < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Reads so many bytes, and keeps none.
    pub async fn skip(&mut self, len: u64) -> io::Result<()> {
        let mut bytes = (&mut self.stream).take(len);
        tokio::io::copy_buf(&mut bytes, &mut tokio::io::sink()).await?;
        Ok(())
    }

    /// Reads lines to the first empty one.
    async fn lines(&mut self) -> io::Result<String> {
        let mut lines = String::new();
        loop {
            let line = self.line().await?;
            if line.trim_end().is_empty() {
                return Ok(lines);
            }
            lines.push_str(&line);
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).await?;
        if line.ends_with('\n') {
            Ok(line)
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref()).await
    }

    /// Waits until the peer closes the connection, and returns what it wrote before.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset ends it as well.
        _ = self.stream.read_to_end(&mut rest).await;
        rest
    }

    /// Ends the connection with a reset in place of an orderly close.
    pub fn reset(self) -> io::Result<()> {
        self.stream.get_ref().set_zero_linger()
    }

    pub fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }
}

/// A response without a body.
pub fn status(status: u16) -> String {
    answer(status, "", "")
}

/// A response with extra header lines, each ended by a line break, and a body of known length.
pub fn answer(status: u16, headers: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {len}\r\n{headers}\r\n{body}")
}

/// A response whose body has no known length.
pub fn chunked(status: u16, body: &str) -> String {
    let len = body.len();
    format!(
        "HTTP/1.1 {status} Scripted\r\ntransfer-encoding: chunked\r\n\r\n{len:x}\r\n{body}\r\n0\r\n\r\n"
    )
}
