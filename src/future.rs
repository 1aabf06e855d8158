//! The [`ResponseFuture`]: the state machine of a call, and nothing else.

use crate::{
    body::{BoxError, ReplayBody, ResponseBody},
    call::{Answer, Asking, Call, Ended, Step},
    drain::Drain,
    observe::{Phase, WATCHED},
    pass::Passing,
    reason::StopReason,
    timer::Timer,
};
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tower_service::Service;
use tracing::Span;

pin_project! {
    /// The future of a call through [`RetryBudget`](crate::RetryBudget).
    ///
    /// # Cancel safety
    ///
    /// Dropped in any state it sends nothing more, gives back a retry that was not sent, frees the
    /// request body and leaves no task behind.
    ///
    /// # Panics
    ///
    /// When it is polled after it has completed, or outside a tokio runtime with time enabled once
    /// there is something to wait for.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B, R>
    where
        S: Service<Request<ReplayBody<B>>, Response = Response<R>>,
    {
        #[pin]
        kind: Kind<S, B, R>,
    }
}

pin_project! {
    #[project = KindProj]
    #[allow(clippy::large_enum_variant, reason = "a call that may be retried allocates nothing for it")]
    enum Kind<S, B, R>
    where
        S: Service<Request<ReplayBody<B>>, Response = Response<R>>,
    {
        Running { #[pin] running: Running<S, B, R> },
        // A call that is only watched.
        Passing { passing: Passing, #[pin] future: S::Future },
        // It was only watched, and has had its answer.
        Passed,
    }
}

pin_project! {
    // A call that may be retried, cut or held back, or that somebody listens to.
    struct Running<S, B, R>
    where
        S: Service<Request<ReplayBody<B>>, Response = Response<R>>,
    {
        // In a box: it is moved with the future, by everybody outside.
        call: Box<Call<S, B>>,
        span: Span,
        #[pin]
        state: State<S::Future, R, S::Error>,
        #[pin]
        timer: Timer,
    }

    impl<S, B, R> PinnedDrop for Running<S, B, R>
    where
        S: Service<Request<ReplayBody<B>>, Response = Response<R>>,
    {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if let Some(during) = this.state.phase() {
                let _inside = this.span.enter();
                let attempt = this.call.watch.enter();
                this.state.set(State::Done);
                drop(attempt);
                this.call.cancelled(during);
            }
        }
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, R, E> {
        // An attempt is under way.
        Attempt { #[pin] future: F },
        // A shared budget is asked, or credentials are refreshed. The outcome is kept: it may stand.
        Ask { asking: Asking, ended: Option<Ended<R, E>> },
        // The body of the failed response is read to its end, so that its connection can be reused.
        Drain { #[pin] drain: Drain<R> },
        // The time before the next attempt. Nothing of the inner service is held.
        Wait,
        // The next attempt is kept by whoever resumes calls, then the inner service gets ready for it.
        Ready,
        // The answer was found without an attempt.
        Answered { answer: Option<Answer<R, E>> },
        Done,
    }
}

impl<F, R, E> State<F, R, E> {
    /// What a call in this state is doing. `None` when it has its answer.
    fn phase(&self) -> Option<Phase> {
        match self {
            Self::Attempt { .. } => Some(Phase::Attempt),
            Self::Ask { .. } => Some(Phase::Asking),
            Self::Drain { .. } => Some(Phase::Draining),
            Self::Wait => Some(Phase::Waiting),
            Self::Ready => Some(Phase::Readying),
            Self::Answered { .. } | Self::Done => None,
        }
    }
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<R>>,
{
    /// A call whose first attempt has been sent.
    pub(crate) fn attempt(call: Box<Call<S, B>>, span: Span, future: S::Future) -> Self {
        Self::new(call, span, State::Attempt { future })
    }

    /// A call that is only watched, and has been sent.
    pub(crate) fn passing(passing: Passing, future: S::Future) -> Self {
        let kind = Kind::Passing { passing, future };
        Self { kind }
    }

    /// A call whose first attempt is held back.
    pub(crate) fn held(call: Box<Call<S, B>>, span: Span) -> Self {
        Self::new(call, span, State::Wait)
    }

    /// A call that was refused without an attempt.
    pub(crate) fn answered(call: Box<Call<S, B>>, span: Span, answer: Answer<R, S::Error>) -> Self {
        let answer = Some(answer);
        Self::new(call, span, State::Answered { answer })
    }

    fn new(call: Box<Call<S, B>>, span: Span, state: State<S::Future, R, S::Error>) -> Self {
        let running = Running {
            call,
            span,
            state,
            timer: Timer::default(),
        };
        let kind = Kind::Running { running };
        Self { kind }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B, R>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<R>>,
    S::Error: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
    R: Body,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut kind = self.project().kind;
        let answer = match kind.as_mut().project() {
            KindProj::Running { running } => return running.poll(cx),
            KindProj::Passing { passing, future } => passing.end(ready!(future.poll(cx))),
            KindProj::Passed => panic!("polled after completion"),
        };
        kind.set(Kind::Passed);
        Poll::Ready(answer)
    }
}

impl<S, B, R> Running<S, B, R>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<R>>,
    S::Error: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
    R: Body,
{
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer<R, S::Error>> {
        let mut this = self.project();
        let call = this.call;
        let _inside = WATCHED.then(|| this.span.enter());
        loop {
            let step = match this.state.as_mut().project() {
                StateProj::Attempt { future } => match call.inside(|| future.poll(cx)) {
                    Poll::Ready(Ok(response)) if call.is_plain_success(&response) => {
                        this.state.set(State::Done);
                        return Poll::Ready(Ok(response.map(ResponseBody::inner)));
                    }
                    Poll::Ready(result) => call.ended(Ended::from(result)),
                    Poll::Pending => {
                        ready!(this.timer.as_mut().poll_at(call.attempt_limit(), cx));
                        call.inside(|| this.state.set(State::Done));
                        call.ended(Ended::Cut)
                    }
                },
                StateProj::Ask { asking, ended } => {
                    let answer = asking.poll(cx);
                    if answer.is_pending() {
                        ready!(this.timer.as_mut().poll_at(call.deadline, cx));
                    }
                    let ended = ended.take().expect("asked once");
                    match answer {
                        Poll::Ready(answer) => call.answered(answer, ended),
                        Poll::Pending => call.unanswered(ended),
                    }
                }
                StateProj::Drain { mut drain } => {
                    if drain.as_mut().poll_end(cx).is_pending() {
                        ready!(this.timer.as_mut().poll_at(drain.until(), cx));
                    }
                    this.state.set(State::Wait);
                    continue;
                }
                StateProj::Wait => {
                    call.poll_persisting(cx);
                    let over = match call.poll_switch(cx) {
                        Ok(()) => {
                            ready!(this.timer.as_mut().poll_at(call.send_at(), cx));
                            call.wait_is_over()
                        }
                        Err(reason) => Err(reason),
                    };
                    match over {
                        Ok(true) => this.state.set(State::Ready),
                        Ok(false) => {}
                        Err(reason) => {
                            let answer = call.give_up(reason);
                            this.state.set(State::Answered {
                                answer: Some(answer),
                            });
                        }
                    }
                    continue;
                }
                StateProj::Ready => {
                    let ready = match call.poll_begin(cx) {
                        Poll::Ready(Ok(())) => call.next_request(),
                        Poll::Ready(Err(reason)) => Err(reason),
                        Poll::Pending => {
                            ready!(this.timer.as_mut().poll_at(call.deadline, cx));
                            Err(StopReason::DeadlineReached)
                        }
                    };
                    match ready {
                        Ok(request) => {
                            let future = call.send(request);
                            this.state.set(State::Attempt { future });
                            continue;
                        }
                        Err(reason) => Step::Answer(call.give_up(reason)),
                    }
                }
                StateProj::Answered { answer } => {
                    Step::Answer(answer.take().expect("answered once"))
                }
                StateProj::Done => panic!("polled after completion"),
            };
            match step {
                Step::Ask(asking, ended) => {
                    let ended = Some(ended);
                    this.state.set(State::Ask { asking, ended });
                }
                Step::Retry(body) => {
                    let until = call.drain_until();
                    this.state
                        .set(match body.and_then(|body| Drain::new(body, until)) {
                            Some(drain) => State::Drain { drain },
                            None => State::Wait,
                        });
                }
                Step::Answer(answer) => {
                    this.state.set(State::Done);
                    return Poll::Ready(call.finish(answer));
                }
            }
        }
    }
}

impl<S, B, R> fmt::Debug for ResponseFuture<S, B, R>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<R>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
