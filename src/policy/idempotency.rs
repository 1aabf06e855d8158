use http::{HeaderMap, HeaderName, HeaderValue, Method, request::Parts};
use uuid::Uuid;

/// A request extension: says of this one request whether it may be repeated, whatever its method.
///
/// It overrides the policy both ways.
///
/// ```
/// use tower_retry_budget::policy::Idempotent;
///
/// let mut search = http::Request::post("http://search/query").body(()).unwrap();
/// search.extensions_mut().insert(Idempotent(true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotent(pub bool);

/// The field with which a client and a server agree that repeating a request has one effect.
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Whether the request may be repeated though it may have been processed (RFC 9110,
/// section 9.2.2; QUERY by its own specification).
pub(crate) fn is_idempotent(request: &Parts, trust_method: bool, trust_key: bool) -> bool {
    if let Some(Idempotent(decided)) = request.extensions.get() {
        return *decided;
    }
    (trust_method && is_idempotent_method(&request.method))
        || (trust_key && has_key(&request.headers))
}

fn is_idempotent_method(method: &Method) -> bool {
    method.is_idempotent() || method.as_str() == "QUERY"
}

fn has_key(headers: &HeaderMap) -> bool {
    headers
        .get(&IDEMPOTENCY_KEY)
        .is_some_and(|key| !key.as_bytes().trim_ascii().is_empty())
}

/// Sets the key that the call was given before, or one that nobody else has, unless the caller gave one or
/// said that the request is not to be repeated. Returns what it has set.
pub(super) fn give_key(request: &mut Parts, before: Option<Uuid>) -> Option<Uuid> {
    let decided = request.extensions.get::<Idempotent>().is_some();
    if decided || has_key(&request.headers) {
        return None;
    }
    let key = before.unwrap_or_else(Uuid::new_v4);
    let value = HeaderValue::try_from(key.hyphenated().to_string()).ok()?;
    request.headers.insert(&IDEMPOTENCY_KEY, value);
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn request(method: &str) -> Parts {
        let request = Request::builder().method(method).body(());
        request.expect("a valid request").into_parts().0
    }

    #[test]
    fn trusts_the_methods_that_the_standard_calls_idempotent() {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"] {
            assert!(is_idempotent(&request(method), true, true), "{method}");
        }
        for method in ["POST", "PATCH", "CONNECT", "LOCK", "get"] {
            assert!(!is_idempotent(&request(method), true, true), "{method}");
        }
    }

    #[test]
    fn trusts_a_key_only_when_told_to_and_only_when_it_says_something() {
        let mut post = request("POST");
        post.headers
            .insert(&IDEMPOTENCY_KEY, "k1".parse().expect("a valid value"));
        assert!(is_idempotent(&post, true, true));
        assert!(!is_idempotent(&post, true, false));
        post.headers
            .insert(&IDEMPOTENCY_KEY, " ".parse().expect("a valid value"));
        assert!(!is_idempotent(&post, true, true));
    }

    #[test]
    fn trusts_no_method_when_told_not_to() {
        assert!(!is_idempotent(&request("GET"), false, true));
        let mut keyed = request("PUT");
        keyed
            .headers
            .insert(&IDEMPOTENCY_KEY, "k1".parse().expect("a valid value"));
        assert!(is_idempotent(&keyed, false, true));
    }

    #[test]
    fn obeys_the_extension_both_ways() {
        let mut get = request("GET");
        get.extensions.insert(Idempotent(false));
        assert!(!is_idempotent(&get, true, true));
        let mut post = request("POST");
        post.extensions.insert(Idempotent(true));
        assert!(is_idempotent(&post, true, false));
    }
}
