//! What a large body costs in memory.

use crate::support::{
    client::{bounded, http, http1, layer, quick, request},
    info,
    origin::{BOTH, Origin},
    script::Script,
    send,
    source::{Lent, Source, lend},
    wire::{Wire, status},
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use std::{
    convert::Infallible,
    fs, io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    fs::File,
    io::{AsyncRead, ReadBuf},
};
use tower::{Layer, service_fn};
use tower_retry_budget::{
    RetryPolicy,
    body::{BodyFactory, ReplayBody},
    reason::SkipReason,
};

static CHUNK: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// A file of 4 MiB without two chunks that are the same, removed when it is dropped.
struct Upload {
    path: PathBuf,
    content: Vec<u8>,
}

impl Upload {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = dir.join(format!("{name}-{}", std::process::id()));
        let content: Vec<u8> = (0..1024 * 1024_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(&path, &content).expect("room for a file");
        Self { path, content }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}

/// Reads a file as it is sent.
struct FileBody {
    file: File,
    left: u64,
    lent: Arc<Lent>,
}

impl FileBody {
    fn open(path: &Path, lent: &Arc<Lent>) -> io::Result<Self> {
        let file = fs::File::open(path)?;
        let left = file.metadata()?.len();
        Ok(Self {
            file: file.into(),
            left,
            lent: Arc::clone(lent),
        })
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut chunk = vec![0; 32 * 1024];
        let mut read = ReadBuf::new(&mut chunk);
        ready!(Pin::new(&mut self.file).poll_read(cx, &mut read))?;
        let len = read.filled().len();
        chunk.truncate(len);
        self.left -= len as u64;
        let frame = (len > 0).then(|| lend(&self.lent, chunk.into()));
        Poll::Ready(frame.map(|data| Ok(Frame::data(data))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[tokio::test]
async fn a_file_is_replayed_byte_for_byte_without_being_kept() {
    let upload = Upload::new("replayed");
    for version in BOTH {
        let origin = Origin::serve(version, Script::new([500, 503])).await;
        let lent = Arc::<Lent>::default();
        let body = FileBody::open(&upload.path, &lent).expect("the file is there");
        let mut request = request("PUT", &origin.uri(), body);
        let again = {
            let (path, lent) = (upload.path.clone(), Arc::clone(&lent));
            move || FileBody::open(&path, &lent)
        };
        request.extensions_mut().insert(BodyFactory::new(again));
        let service = layer(quick()).layer(http(version));
        let response = bounded(send(&service, request)).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(info(&response).attempts, 3);
        let seen = origin.script().seen();
        assert_eq!(seen.len(), 3);
        for seen in seen {
            assert_eq!(seen.header("content-length"), Some("4194304"));
            let body = seen.body.expect("a whole body");
            assert!(
                *body == upload.content,
                "not the same bytes over {version:?}"
            );
        }
        assert_eq!(lent.bytes(), 3 * upload.content.len() as u64);
        assert!(lent.peak() <= 1024 * 1024, "{lent:?}");
    }
}

#[tokio::test]
async fn a_file_that_is_gone_ends_the_call_with_the_outcome_in_hand() {
    let upload = Upload::new("gone");
    let lent = Arc::<Lent>::default();
    let wire = Wire::answers([status(500)]).await;
    let body = FileBody::open(&upload.path, &lent).expect("the file is there");
    let mut request = request("PUT", &wire.uri(), body);
    let path = upload.path.clone();
    drop(upload);
    let again = move || FileBody::open(&path, &lent);
    request.extensions_mut().insert(BodyFactory::new(again));
    let service = layer(quick()).layer(http1());
    let response = bounded(send(&service, request)).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 500);
    assert_eq!(info(&response).skipped, Some(SkipReason::NotReplayable));
    assert_eq!(wire.count(), 1);
}

/// Takes a body as it comes, and fails.
async fn swallow(request: Request<ReplayBody<Source>>) -> Result<Response<String>, Infallible> {
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        frame.expect("a whole body");
    }
    let mut response = Response::new(String::new());
    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    Ok(response)
}

#[tokio::test]
async fn nothing_is_kept_of_a_gibibyte_that_is_never_retried() {
    for method in ["PUT", "POST"] {
        let service = layer(quick()).layer(service_fn(swallow));
        let body = Source::chunks(16 * 1024, &CHUNK);
        let lent = body.lent();
        let mut request = request(method, "http://store/", body);
        request.extensions_mut().insert(RetryPolicy::never());
        let response = bounded(send(&service, request)).await;
        assert_eq!(response.expect("a response").status(), 500);
        assert_eq!(lent.bytes(), 1024 * 1024 * 1024);
        assert_eq!(lent.peak(), CHUNK.len() as u64);
    }
}

#[tokio::test]
async fn a_gibibyte_over_the_limit_streams_on_in_constant_memory() {
    let service = layer(quick()).layer(service_fn(swallow));
    let body = Source::chunks(16 * 1024, &CHUNK);
    let lent = body.lent();
    let response = bounded(send(&service, request("PUT", "http://store/", body))).await;
    let response = response.expect("a response");
    assert_eq!(info(&response).skipped, Some(SkipReason::NotReplayable));
    assert_eq!(lent.bytes(), 1024 * 1024 * 1024);
    // What the limit lets be kept, and the chunk that goes over it.
    assert!(lent.peak() <= 2 * CHUNK.len() as u64, "{lent:?}");
}

#[tokio::test]
async fn an_upload_under_a_never_policy_goes_through_a_socket_in_constant_memory() {
    let wire = Wire::serve(|mut conn| async move {
        let head = conn.head().await?;
        assert_eq!(head.values("content-length"), ["67108864"]);
        conn.skip(64 * 1024 * 1024).await?;
        conn.send(status(200)).await
    })
    .await;
    let body = Source::chunks(1024, &CHUNK).exact(64 * 1024 * 1024);
    let lent = body.lent();
    let mut request = request("POST", &wire.uri(), body);
    request.extensions_mut().insert(RetryPolicy::never());
    let service = layer(quick()).layer(http1());
    let response = bounded(send(&service, request)).await;
    assert_eq!(response.expect("a response").status(), 200);
    assert!(lent.peak() <= 1024 * 1024, "{lent:?}");
}
