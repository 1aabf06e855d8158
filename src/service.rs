use crate::{
    body::{BodyFactory, BoxError, Replay, ReplayBody, ResponseBody},
    budget::Key,
    call::{Again, Call, Gated, HeldAs, Progress, Resume},
    chosen::Chosen,
    clock,
    deadline::{Deadline, Ownership, RetriedAbove, Scope},
    decide::ReplayClass,
    future::ResponseFuture,
    observe::{self, WATCHED, Watch},
    pass::Passing,
    policy::{RetryPolicy, TotalTimeout},
    reason::SkipReason,
    shared::Shared,
    template::Template,
};
use http::{Method, Request, Response, header, request::Parts};
use http_body::{Body, SizeHint};
use std::{
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tower_service::Service;

/// A service that retries the one inside. Made by [`RetryBudgetLayer`](crate::RetryBudgetLayer).
///
/// Its clones share everything but the inner service.
#[derive(Clone, Debug)]
pub struct RetryBudget<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> RetryBudget<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }

    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Unwraps the service inside.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RetryBudget<S>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<R>> + Clone,
    S::Error: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
    R: Body,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B, R>;

    /// Readiness of the inner service. It has no request yet, so no deadline bounds it: limit or
    /// shed load outside of this layer.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        let shared = self.shared.in_force();
        #[cfg(feature = "serde")]
        shared.announce();
        let chosen = match Chosen::early(&shared, &mut head) {
            Some(chosen) if Passing::suffices(&shared, &chosen, &head) => {
                let passing = Passing::begin(shared, chosen, &mut head);
                head.extensions.remove::<BodyFactory>();
                let request = Request::from_parts(head, ReplayBody::direct(body));
                return ResponseFuture::passing(passing, self.inner.call(request));
            }
            chosen => chosen,
        };
        let now = clock::now();
        let factory = head.extensions.remove::<BodyFactory>();
        let size = factory.is_none().then(|| body.size_hint());
        let mut call = self.begin(shared, &mut head, chosen, size.as_ref(), now);
        let span = observe::call_span(&call.method, &call.key, call.policy().max_attempts());
        if WATCHED && (call.shared.observer.is_some() || !span.is_disabled()) {
            let name = call.shared.operation_fn.as_ref();
            call.watch = Watch::new(&span, name.and_then(|name| name(&head)));
        }
        let inside = WATCHED.then(|| span.enter());
        call.watched(now, |observer, call| observer.call_started(call));
        let held = match call.hold_first(now) {
            Ok(held) => held,
            Err(reason) => {
                self.keep_unready();
                let answer = call.give_up(reason);
                drop(inside);
                return ResponseFuture::answered(call, span, answer);
            }
        };
        // The body in hand is the first attempt's, also when that has to wait.
        let factory = factory.filter(|_| !held);
        let limit = match call.class {
            ReplayClass::Never(_) => held.then_some(0),
            ReplayClass::IfUnprocessed | ReplayClass::Full => Some(call.policy().replay_limit()),
        };
        let body = match limit {
            Some(limit) => {
                let (body, replay) = Replay::new(body, limit, &self.shared.memory, factory);
                call.again = Some(Again {
                    service: self.inner.clone(),
                    template: Template::new(&head, replay),
                });
                body
            }
            None => ReplayBody::direct(body),
        };
        if held {
            self.keep_unready();
            drop(inside);
            return ResponseFuture::held(call, span);
        }
        call.begin_attempt(&mut head, now);
        let future = call.inside(|| self.inner.call(Request::from_parts(head, body)));
        drop(inside);
        ResponseFuture::attempt(call, span, future)
    }
}

impl<S: Clone> RetryBudget<S> {
    /// Lets go of the readied instance, which may hold a permit of the inner service, when it is not
    /// the one that is called.
    fn keep_unready(&mut self) {
        self.inner = self.inner.clone();
    }
}

impl<S> RetryBudget<S> {
    /// Finds out all that is fixed before the first attempt. `size` is what is known of the length of
    /// the body, `None` when that can be made again.
    fn begin<B>(
        &self,
        shared: Arc<Shared>,
        head: &mut Parts,
        chosen: Option<Chosen>,
        size: Option<&SizeHint>,
        now: Instant,
    ) -> Box<Call<S, B>> {
        let key = shared.keys.key(head);
        let mut gated = Gated::new(shared.gates);
        let mut received = shared
            .inbound
            .as_ref()
            .map(|inbound| inbound.receive(head, now));
        let scope = match &received {
            Some(received) => Some(received.scope.clone()),
            None => Scope::inherited(head),
        };
        let above = above(&shared, head, scope.as_ref());
        let above = match &mut gated {
            Some(gated) => gated.above(above),
            None => above,
        };
        let mut resume = Resume::take(head, now);
        let chosen = chosen.unwrap_or_else(|| Chosen::of(&shared, head));
        let Chosen {
            policy: mut own_policy,
            budget,
        } = chosen;
        if let Some(resume) = &resume {
            let policy = own_policy.unwrap_or_else(|| shared.policy.clone());
            own_policy = Some(resume.limit(policy));
        }
        let policy = own_policy.as_ref().unwrap_or(&shared.policy);
        if resume.is_none() && policy.defer_waits_over().is_some() {
            resume = Some(Resume::begin(now));
        }
        let before = resume.as_ref().and_then(|resume| resume.idempotency_key());
        let given = policy.give_key(head, shared.side, before);
        if let Some((resume, key)) = resume.as_mut().zip(given) {
            resume.keep_idempotency_key(key);
        }
        let idempotent = policy.is_idempotent(head, shared.side);
        let class = match above {
            Some(_) => ReplayClass::Never(SkipReason::OwnedAbove),
            None => class(head, policy, idempotent),
        };
        let fits = size.is_none_or(|size| fits(size, policy.replay_limit()));
        let class = match &mut gated {
            Some(gated) => gated.class(class, fits),
            None => class,
        };
        let class = match class {
            ReplayClass::IfUnprocessed | ReplayClass::Full if shared.retries_off(&key) => {
                ReplayClass::Never(SkipReason::Disabled)
            }
            class => class,
        };
        let total = total_timeout(policy.total_timeout(shared.side), class, fits);
        let kept = resume.as_ref().and_then(|resume| resume.deadline());
        let deadline = deadline(head, scope.as_ref(), total, now);
        let deadline = deadline.into_iter().chain(kept).min();
        if let Some(resume) = &mut resume {
            resume.admit(policy.max_attempts(), deadline);
        }
        let deadline = match &mut gated {
            Some(gated) => gated.deadline(deadline),
            None => deadline,
        };
        if let Some(received) = &mut received {
            received.scope = received.scope.until(deadline);
        }
        let held_as = shared.hold_off.as_ref().map(|holds| {
            Box::new(HeldAs {
                dependency: Key::from_uri(&head.uri),
                tenant: holds.tenant(head),
            })
        });
        Box::new(Call {
            key,
            budget,
            class,
            method: head.method.clone(),
            idempotent,
            instance: policy.instance(head),
            again: None,
            started: now,
            deadline,
            held_as,
            tells: shared.tells(&head.uri),
            scope,
            received,
            above,
            progress: Progress::new(now, resume.as_ref().map_or(0, |resume| resume.attempts())),
            resume,
            limit: policy.max_attempts(),
            own_policy,
            gated,
            sleeper: None,
            shared,
            watch: Watch::default(),
        })
    }
}

/// Who retries the request, when that is not this layer.
#[inline]
fn above(shared: &Shared, head: &Parts, scope: Option<&Scope>) -> Option<Ownership> {
    if head.extensions.get::<RetriedAbove>().is_some() {
        return Some(Ownership::Told);
    }
    let attempt = scope.and_then(Scope::attempt);
    let skipped = attempt.filter(|attempt| shared.layered.skips(*attempt));
    skipped.map(Ownership::Attempt)
}

/// What of the request may be repeated.
fn class(head: &Parts, policy: &RetryPolicy, idempotent: bool) -> ReplayClass {
    if policy.max_attempts() == 1 || changes_protocol(head) {
        ReplayClass::Never(SkipReason::Disabled)
    } else if idempotent {
        ReplayClass::Full
    } else {
        ReplayClass::IfUnprocessed
    }
}

/// An upgrade turns the connection over to the caller. (`:protocol` comes with CONNECT only.)
fn changes_protocol(head: &Parts) -> bool {
    head.method == Method::CONNECT
        || head.headers.contains_key(header::UPGRADE)
        || head.extensions.get::<hyper::upgrade::OnUpgrade>().is_some()
}

/// Whether the body is known to fit the replay limit.
fn fits(size: &SizeHint, limit: usize) -> bool {
    let upper = size.upper();
    upper.is_some_and(|upper| usize::try_from(upper).is_ok_and(|upper| upper <= limit))
}

/// How long the policy lets the call take.
fn total_timeout(total: TotalTimeout, class: ReplayClass, fits: bool) -> Option<Duration> {
    match total {
        TotalTimeout::Always(limit) => Some(limit),
        TotalTimeout::WhenReplayable(limit) if class == ReplayClass::Full && fits => Some(limit),
        TotalTimeout::WhenReplayable(_) | TotalTimeout::Never => None,
    }
}

/// The earliest of the policy's, the request's own and the inherited one.
fn deadline(
    head: &Parts,
    scope: Option<&Scope>,
    total: Option<Duration>,
    now: Instant,
) -> Option<Instant> {
    let total = total.and_then(|limit| now.checked_add(limit));
    let own = head.extensions.get::<Deadline>().copied();
    let own = own.and_then(Deadline::instant);
    let inherited = scope.and_then(Scope::deadline);
    total.into_iter().chain(own).chain(inherited).min()
}
