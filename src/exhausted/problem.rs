use super::{AttemptRecord, Exhausted};
use crate::{clock::millis, policy::OnExhausted};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde::ser::{Serialize, SerializeSeq, SerializeStruct, Serializer};
use std::time::Duration;

/// Where the reasons are explained.
const TYPE: &str = "https://docs.rs/tower-retry-budget#exhausted";

/// Builds the `503` (RFC 9110, section 15.6.4) in problem+json (RFC 9457).
///
/// `kept` are fields of the last response that the caller is to have as well.
pub(crate) fn respond(
    exhausted: Exhausted,
    kept: HeaderMap,
    answer: OnExhausted,
    method: &Method,
) -> Response<Bytes> {
    let body = match answer {
        _ if method == Method::HEAD => None,
        OnExhausted::Terse => serde_json::to_vec(&Terse).ok(),
        _ => serde_json::to_vec(&Full(&exhausted)).ok(),
    };
    let mut response = Response::new(Bytes::from(body.unwrap_or_default()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    *headers = kept;
    let media_type = HeaderValue::from_static("application/problem+json");
    headers.insert(header::CONTENT_TYPE, media_type);
    if let Some(wait) = exhausted.retry_after() {
        let seconds = HeaderValue::from(whole_seconds(wait));
        headers.insert(header::RETRY_AFTER, seconds);
    }
    response.extensions_mut().insert(exhausted);
    response
}

/// Rounds up, so that nobody comes back too early.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs()
        .saturating_add(u64::from(wait.subsec_nanos() > 0))
}

/// The whole of the details, in the order in which a person would read them.
struct Full<'a>(&'a Exhausted);

impl Serialize for Full<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let this = self.0;
        let status = |status: StatusCode| status.as_u16();
        let mut problem = serializer.serialize_struct("Problem", 16)?;
        problem.serialize_field("type", TYPE)?;
        problem.serialize_field("title", "Retries exhausted")?;
        problem.serialize_field("status", &503)?;
        problem.serialize_field("detail", &this.to_string())?;
        if let Some(instance) = this.instance() {
            problem.serialize_field("instance", instance)?;
        }
        problem.serialize_field("reason", this.reason().as_str())?;
        problem.serialize_field("dependency", &this.dependency().to_string())?;
        problem.serialize_field("attempts", &this.attempts())?;
        problem.serialize_field("max_attempts", &this.max_attempts())?;
        problem.serialize_field("elapsed_ms", &millis(this.elapsed()))?;
        problem.serialize_field("waited_ms", &millis(this.waited()))?;
        problem.serialize_field("last_status", &this.last_status().map(status))?;
        problem.serialize_field("error_type", &this.error_type())?;
        problem.serialize_field("retryable", &this.is_retryable())?;
        problem.serialize_field("processed", this.processed().as_str())?;
        let retry_after = this.retry_after().map(whole_seconds);
        let retry_after_ms = retry_after.map(|seconds| seconds.saturating_mul(1000));
        problem.serialize_field("retry_after_ms", &retry_after_ms)?;
        problem.serialize_field("history", &Records(this))?;
        problem.end()
    }
}

struct Records<'a>(&'a Exhausted);

impl Serialize for Records<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let history = self.0.history();
        let mut records = serializer.serialize_seq(Some(history.len()))?;
        for record in history {
            records.serialize_element(&Record(record))?;
        }
        records.end()
    }
}

struct Record<'a>(&'a AttemptRecord);

impl Serialize for Record<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let this = self.0;
        let mut record = serializer.serialize_struct("Attempt", 5)?;
        record.serialize_field("attempt", &this.attempt())?;
        record.serialize_field("status", &this.status().map(|status| status.as_u16()))?;
        if let Some(error_type) = this.error_type() {
            record.serialize_field("error_type", error_type)?;
        }
        record.serialize_field("elapsed_ms", &millis(this.elapsed()))?;
        record.serialize_field("wait_ms", &millis(this.wait()))?;
        record.end()
    }
}

/// Nothing that a stranger could learn from.
struct Terse;

impl Serialize for Terse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut problem = serializer.serialize_struct("Problem", 3)?;
        problem.serialize_field("type", "about:blank")?;
        problem.serialize_field("title", "Service Unavailable")?;
        problem.serialize_field("status", &503)?;
        problem.end()
    }
}
