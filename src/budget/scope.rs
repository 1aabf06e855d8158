use super::Key;
use crate::ConfigError;
use http::request::Parts;
use std::{fmt, sync::Arc};

type KeyFn = dyn Fn(&Parts) -> Option<Key> + Send + Sync;

type RouteFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// What the accounts of a budget are kept by: the thing that can be overloaded.
///
/// By default that is the authority that a request is sent to. Several names of one dependency share
/// an account by an alias.
///
/// ```
/// use tower_retry_budget::{RetryBudgetLayer, budget::BudgetScope};
///
/// let scope = BudgetScope::authority()
///     .alias("*.s3.amazonaws.com", "s3")?
///     .alias("search-blue", "search")?
///     .alias("search-green", "search")?;
/// let layer = RetryBudgetLayer::new().budget_scope(scope);
///
/// // One sick route does not use up the retries of the others.
/// let by_route = BudgetScope::route_fn(|request| {
///     let first = request.uri.path().split('/').nth(1)?;
///     Some(first.to_owned())
/// });
/// # let _ = (layer, by_route);
/// # Ok::<_, tower_retry_budget::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct BudgetScope {
    rule: Rule,
    aliases: Vec<Alias>,
}

#[derive(Clone)]
enum Rule {
    Authority,
    One(Key),
    Route(Arc<RouteFn>),
    Key(Arc<KeyFn>),
}

#[derive(Clone, Debug)]
struct Alias {
    hosts: Hosts,
    key: Key,
}

/// Host names in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hosts {
    One(String),
    /// All below a domain, which is kept with the dot before it.
    Below(String),
}

impl BudgetScope {
    /// An account for each scheme, host and port.
    pub const fn authority() -> Self {
        Self::of(Rule::Authority)
    }

    /// One account for all requests.
    pub fn one(name: impl Into<Arc<str>>) -> Self {
        Self::of(Rule::One(Key::new(name)))
    }

    /// An account for each route of each authority. Where no route is named, the authority's.
    ///
    /// Name routes, not paths: a budget has room for a bounded number of accounts, and one for every
    /// id in a path would never hold a token. Building the key costs an allocation for each request.
    pub fn route_fn(name: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::of(Rule::Route(Arc::new(name)))
    }

    /// The account that the function names. Where it names none, the authority's.
    pub fn key_fn(name: impl Fn(&Parts) -> Option<Key> + Send + Sync + 'static) -> Self {
        Self::of(Rule::Key(Arc::new(name)))
    }

    pub(crate) const fn fixed(key: Key) -> Self {
        Self::of(Rule::One(key))
    }

    const fn of(rule: Rule) -> Self {
        Self {
            rule,
            aliases: Vec::new(),
        }
    }

    /// Puts a host, or all hosts below a domain (`*.s3.amazonaws.com`), on an account of this name,
    /// whatever the scheme and the port. The first alias that fits counts. Case does not matter.
    ///
    /// # Errors
    ///
    /// When the pattern is empty, or has a `*` anywhere but as its whole first label, or is more than
    /// a host.
    pub fn alias(mut self, pattern: &str, name: impl Into<Arc<str>>) -> Result<Self, ConfigError> {
        let hosts = Hosts::parse("alias", pattern)?;
        let key = Key::new(name);
        self.aliases.push(Alias { hosts, key });
        Ok(self)
    }

    /// The same rule with these aliases and no others.
    #[cfg(feature = "serde")]
    pub(crate) fn with_aliases(&self, aliases: &[(Hosts, Key)]) -> Self {
        let aliases = aliases.iter().cloned();
        Self {
            rule: self.rule.clone(),
            aliases: aliases.map(|(hosts, key)| Alias { hosts, key }).collect(),
        }
    }

    /// The account of a request.
    pub(crate) fn key(&self, request: &Parts) -> Key {
        match &self.rule {
            Rule::One(key) => key.clone(),
            Rule::Authority => self.authority_key(request),
            Rule::Route(name) => {
                let authority = self.authority_key(request);
                match name(request) {
                    Some(route) => Key::new(format!("{authority} {route}")),
                    None => authority,
                }
            }
            Rule::Key(name) => name(request).unwrap_or_else(|| self.authority_key(request)),
        }
    }

    fn authority_key(&self, request: &Parts) -> Key {
        self.alias_of(request)
            .unwrap_or_else(|| Key::from_uri(&request.uri))
    }

    fn alias_of(&self, request: &Parts) -> Option<Key> {
        if self.aliases.is_empty() {
            return None;
        }
        let host = request.uri.host()?;
        let alias = self
            .aliases
            .iter()
            .find(|alias| alias.hosts.contains(host))?;
        Some(alias.key.clone())
    }
}

impl Hosts {
    /// Reads a pattern. `setting` is what it is a value of.
    pub(crate) fn parse(setting: &'static str, pattern: &str) -> Result<Self, ConfigError> {
        let lower = pattern.to_ascii_lowercase();
        let (host, below) = match lower.strip_prefix('*') {
            Some(domain) => (domain, true),
            None => (lower.as_str(), false),
        };
        let labels = if below {
            host.strip_prefix('.')
        } else {
            Some(host)
        };
        let valid = labels.is_some_and(|labels| {
            !labels.is_empty() && !labels.contains(['*', '/', '@', ' ']) && !labels.contains("://")
        });
        if !valid {
            let expected = "a host, or `*.` and a domain";
            return Err(ConfigError::new(setting, pattern, expected));
        }
        let host = host.to_owned();
        Ok(if below {
            Self::Below(host)
        } else {
            Self::One(host)
        })
    }

    /// How much it names: a host more than a domain, a long domain more than a short one.
    #[cfg(feature = "serde")]
    pub(crate) fn precision(&self) -> (bool, usize) {
        match self {
            Self::One(host) => (true, host.len()),
            Self::Below(domain) => (false, domain.len()),
        }
    }

    pub(crate) fn contains(&self, host: &str) -> bool {
        match self {
            Self::One(known) => known.eq_ignore_ascii_case(host),
            Self::Below(domain) => {
                let at = host.len().checked_sub(domain.len());
                let end = at.filter(|at| *at > 0).and_then(|at| host.get(at..));
                end.is_some_and(|end| end.eq_ignore_ascii_case(domain))
            }
        }
    }
}

impl Default for BudgetScope {
    fn default() -> Self {
        Self::authority()
    }
}

impl fmt::Debug for BudgetScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule: &dyn fmt::Debug = match &self.rule {
            Rule::Authority => &"authority",
            Rule::One(key) => key,
            Rule::Route(_) => &"route_fn",
            Rule::Key(_) => &"key_fn",
        };
        f.debug_struct("BudgetScope")
            .field("rule", rule)
            .field("aliases", &self.aliases)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str) -> Parts {
        let request = http::Request::get(uri).body(());
        request.expect("a valid request").into_parts().0
    }

    fn key(scope: &BudgetScope, uri: &str) -> String {
        scope.key(&request(uri)).to_string()
    }

    #[test]
    fn keeps_an_account_for_each_authority() {
        let scope = BudgetScope::default();
        assert_eq!(key(&scope, "http://search:8080/a"), "http://search:8080");
        assert_eq!(key(&scope, "/a"), "no-authority");
    }

    #[test]
    fn keeps_one_account_or_one_for_each_route_or_as_it_is_told() {
        let one = BudgetScope::one("all");
        assert_eq!(key(&one, "http://a/"), key(&one, "http://b/"));
        let route = BudgetScope::route_fn(|head| {
            let name = head.uri.path().strip_prefix("/v1/")?;
            Some(name.to_owned())
        });
        assert_eq!(key(&route, "http://a/v1/find"), "http://a find");
        assert_eq!(key(&route, "http://a/"), "http://a");
        let named = BudgetScope::key_fn(|head| {
            let team = head.headers.get("x-team")?.to_str().ok()?;
            Some(Key::new(team))
        });
        let mut head = request("http://a/");
        assert_eq!(named.key(&head), Key::from_uri(&head.uri));
        head.headers
            .insert("x-team", http::HeaderValue::from_static("search"));
        assert_eq!(named.key(&head), Key::from_static("search"));
    }

    #[test]
    fn puts_several_hosts_on_one_account() {
        let scope = BudgetScope::authority().alias("*.S3.amazonaws.com", "s3");
        let scope = scope.and_then(|scope| scope.alias("search", "find"));
        let scope = scope.expect("valid patterns");
        assert_eq!(key(&scope, "https://a.s3.amazonaws.com/x"), "s3");
        assert_eq!(key(&scope, "http://B.c.s3.AMAZONAWS.com:8080/"), "s3");
        assert_eq!(key(&scope, "http://search:1234/"), "find");
        for other in [
            "http://s3.amazonaws.com/",
            "http://evils3.amazonaws.com/",
            "http://asearch/",
        ] {
            assert!(key(&scope, other).starts_with("http://"), "{other}");
        }
    }

    #[test]
    fn refuses_a_pattern_that_is_no_host() {
        for pattern in [
            "", "*", "*.", "*s3", "a.*.b", "http://a", "a/b", "a b", "u@a", "**.a",
        ] {
            assert!(
                BudgetScope::authority().alias(pattern, "x").is_err(),
                "{pattern:?}"
            );
        }
    }
}
