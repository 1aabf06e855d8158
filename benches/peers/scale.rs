//! How the cost of a call grows with its headers, its body, the keys and the calls that wait.

use crate::{
    inner::Inner,
    measure::{Case, Group, nanos, print, quantile},
    request::{self, owned},
    stacks::{case, layer, ours, plain, retry},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Full;
use std::{
    future::Future,
    hint::black_box,
    pin::Pin,
    task::{Context, Waker},
    thread,
    time::Duration,
};
use tokio::time::Instant;
use tower::{Layer, Service};
use tower_retry_budget::{
    RetryPolicy,
    budget::{Budget, Key, TokenBudget},
    policy::Backoff,
};

const ROUNDS: usize = 21;

pub fn measure() {
    for group in [
        headers::<4>("4 headers"),
        headers::<16>("16 headers"),
        headers::<64>("64 headers"),
    ]
    .into_iter()
    .chain([
        body::<4096>("4 KiB"),
        body::<65_536>("64 KiB, the limit"),
        body::<65_537>("over the limit"),
    ]) {
        let (name, rows) = group.run();
        print(name, &rows);
    }
    keys();
    waiting();
    threads();
}

fn headers<const N: usize>(name: &'static str) -> Group {
    compare(name, || {
        let mut request = owned();
        for at in 4..N {
            let name = HeaderName::try_from(format!("x-header-{at}")).expect("a valid name");
            let value = HeaderValue::from_str("a value of its own").expect("a valid value");
            request.headers_mut().insert(name, value);
        }
        request
    })
}

fn body<const LEN: usize>(name: &'static str) -> Group {
    compare(name, || {
        let request = request::kibibyte();
        request.map(|_| Full::from(Bytes::from(vec![b'x'; LEN])))
    })
}

fn compare(name: &'static str, request: fn() -> Request<Full<Bytes>>) -> Group {
    let cases: Vec<Case> = vec![
        case("bare", request, Inner::ready()),
        case("ours", request, ours(plain(), Inner::ready())),
        case("tower::retry", request, retry().layer(Inner::ready())),
    ];
    Group { name, cases }
}

/// Prints what a deposit costs as the keys get more.
fn keys() {
    println!("\ndeposits, ns each, keys asked for in turn");
    for keys in [1_u32, 64, 4096, 8192] {
        let budget = TokenBudget::default();
        let keys: Vec<Key> = (0..keys)
            .map(|n| Key::from_uri(&format!("http://host-{n}.example").parse().expect("a URI")))
            .collect();
        let now = Instant::now().into_std();
        let times: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                for key in keys.iter().cycle().take(20_000) {
                    budget.deposit(black_box(key), false, now);
                }
                nanos(start.elapsed()) / 20_000.0
            })
            .collect();
        let kept = budget.keys();
        println!(
            "  {:5} keys, {kept:4} of them kept {:8.1}",
            keys.len(),
            quantile(&times, 0.5)
        );
    }
}

/// Prints what a call holds while it waits for its retry.
fn waiting() {
    let slow = Backoff::fixed(Duration::from_secs(3600));
    let policy = plain().backoff(slow.clone()).throttled_backoff(slow);
    let layer = layer(policy);
    let mut service = layer.layer(Inner::failing_always());
    let future = service.call(owned());
    println!("\nsizes, bytes");
    println!("  the future of a call {:20}", size_of_val(&future));
    println!(
        "  of which the inner one {:18}",
        size_of_val(&Inner::ready().call(owned()))
    );
    drop(future);
    let mut cx = Context::from_waker(Waker::noop());
    for calls in [64_u32, 4096] {
        let mut futures: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::with_capacity(calls as usize);
        let counted = allocation_counter::measure(|| {
            for _ in 0..calls {
                let mut future: Pin<Box<dyn Future<Output = _>>> = Box::pin(service.call(owned()));
                assert!(future.as_mut().poll(&mut cx).is_pending());
                futures.push(future);
            }
        });
        let each = counted.bytes_current / i64::from(calls);
        println!("  held by each of {calls:4} calls that wait {each:5}");
        drop(futures);
    }
}

/// Prints calls per second on one thread and on two, to one dependency.
fn threads() {
    const CALLS: u32 = 20_000;
    let service = ours(RetryPolicy::builder().total_timeout(None), Inner::ready());
    let run = || {
        let mut service = service.clone();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..CALLS {
            let mut future = Box::pin(service.call(request::fixed()));
            assert!(future.as_mut().poll(&mut cx).is_ready());
        }
    };
    println!("\ncalls per second, in thousands, the making of the request included");
    for threads in [1_u32, 2] {
        let rates: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(run);
                    }
                });
                f64::from(threads * CALLS) / start.elapsed().as_secs_f64() / 1000.0
            })
            .collect();
        println!("  {threads} thread(s) {:10.0}", quantile(&rates, 0.5));
    }
}
