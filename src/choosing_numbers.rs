//! Choosing numbers: what the defaults do, where they are not the best, and what to change then.
//!
//! There is nothing here but this page. Its figures are from simulations of this crate's own layer on a
//! paused clock, which also repeat what others have published:
//!
//! ```text
//! cargo run --release --example storm
//! ```
//!
//! Unless said otherwise: 1000 calls per second of one client, answers after 20 ms, at most two retries
//! for a call, means of three seeds.
//!
//! # What a budget is for
//!
//! A server with half the load that it could bear works at a tenth of its speed for 3 s, while 20 clients
//! with an attempt time-out of 500 ms and three attempts go on calling it (`--scenario metastable`):
//!
//! | rule | busiest half second, of the calls | well again after |
//! |---|---|---|
//! | no retries | 1.2 | 2.0 s |
//! | three attempts, no budget | 5.3 | never |
//! | `tower::retry` with a `TpsBudget` of 20 % and 10 per second | 5.0 | 4.5 s |
//! | this crate | 1.7 | 2.5 s |
//!
//! Three attempts each are more than the server can do. So its queue stays full, every answer comes too
//! late, and every call is retried: the outage was over long ago. No back-off changes that, since it moves
//! retries and does not remove any. A budget removes them.
//!
//! # The defaults
//!
//! **`ratio` 0.2, given back when a retry succeeds.** The ratio is what failure may cost. Failures that come
//! by themselves are mended almost whole, for as long as retries succeed:
//!
//! | failures | no retries | default | default, all 503 | a fifth of the calls, nothing given back |
//! |---|---|---|---|---|
//! | 10 % | 89.9 % | 99.9 % | 99.9 % | 99.9 % |
//! | 20 % | 79.8 % | 99.2 % | 92.5 % | 96.2 % |
//! | 30 % | 69.8 % | 97.3 % | 79.6 % | 84.2 % |
//! | 50 % | 49.7 % | 59.6 % | 54.7 % | 60.0 % |
//!
//! **Nothing given back after an overload signal.** A 503 that succeeds the second time has still cost the
//! server a rejection. Asked for 5 % more than it can do, and rejecting the rest at a fifth of the cost, a
//! server answers 94.3 % of the calls without retries, 90.5 % under the default, 85.7 % if everything were
//! given back, and 64.1 % without a budget.
//!
//! **`cap` 10, or a fifth of the calls of a second.** A blip of 50 ms fails 50 calls, and 99.4 % of them
//! succeed in the end, as many as without a budget. A bucket of 10 that does not grow with the traffic saves
//! 3 %.
//!
//! **`initial` 5, and a token each 10 s.** In an outage of one client 1.20 attempts are made per call in the
//! first second, and 1.00 from then on. A fifth of the calls and ten more per second would be 1.21 for good.
//!
//! # Where the default is not the best
//!
//! **Mild overload that lasts.** Retrying cannot help a server that has too much to do. *No retries* is the
//! best rule, by 3 to 4 points; gRPC's throttle comes within one of it, since it stops near one failure in
//! ten, and for the same reason mends little of the failures at random (79.8 % at 20 %). If
//! your dependency is more often overloaded than broken, lower the ratio, or leave 503 and 429 out of the
//! [table](crate::policy::RetryPolicyBuilder::statuses):
//!
//! ```
//! use tower_retry_budget::{RetryBudgetLayer, budget::TokenBudget};
//!
//! let careful = TokenBudget::builder().ratio(0.05).build()?;
//! let layer = RetryBudgetLayer::new().budget(careful);
//! # let _ = layer;
//! # Ok::<(), tower_retry_budget::ConfigError>(())
//! ```
//!
//! **A quiet client in a long blip.** At 200 calls per second, a blip of 100 ms fails 20 calls; 74.8 % of
//! them succeed in the end, against 78.5 % without a budget. A client of few calls that each matter wants a
//! larger floor, and pays for it in an outage:
//!
//! ```
//! # use tower_retry_budget::{RetryBudgetLayer, budget::TokenBudget};
//! let generous = TokenBudget::builder().cap(50).initial(25).build()?;
//! # let _ = RetryBudgetLayer::new().budget(generous);
//! # Ok::<(), tower_retry_budget::ConfigError>(())
//! ```
//!
//! **Half of everything fails, and retries would help.** At 50 % failures at random the default saves 10
//! points, and retrying without a budget 38, with 1.75 attempts per call. That is an outage of another
//! kind, and the default takes it for one.
//!
//! **Requests that always fail.** Where a fifth of the users fail whatever is done, no retry saves one. The
//! default sends 1.18 attempts per call, a breaker at 10 % 1.06, and three attempts without a budget 1.39.
//!
//! **A fleet of small clients.** A process brings a floor of its own, and the floors add up. 1000 clients of
//! one call per second each make 2.90 attempts per call in the first second of an outage, as if there were no
//! budget, 1.96 over the first ten, and 1.10 at the end. No rule of one process bounds that first second.
//! One budget for all of them does: 1.20, 1.02 and 1.00, the same as one large client. (Simulated as one
//! `TokenBudget` for all, so without what asking a store takes.) Without one, give each of many small clients
//! a small floor, at the price of their retries while all is well:
//!
//! ```
//! # use tower_retry_budget::{RetryBudgetLayer, budget::TokenBudget};
//! let one_of_many = TokenBudget::builder().cap(2).initial(1).build()?;
//! # let _ = RetryBudgetLayer::new().budget(one_of_many);
//! # Ok::<(), tower_retry_budget::ConfigError>(())
//! ```
//!
//! **A loop that feeds itself.** A server a hundredth over its capacity, whose rejections come back after a
//! second, is offered 26 % more than its calls with three attempts, and more each second for ever without
//! a limit. A budget of 10 % bounds that at 10 %, and does not remove the hundredth.
//!
//! # The other numbers
//!
//! - **`max_attempts` 3.** A fourth attempt mends what three left, at a failure of 20 % a further 0.6 %, and
//!   makes an outage worse by a third wherever the budget does not bind.
//! - **An attempt time-out** frees a call from a server that hangs, and makes work that nobody waits for: the
//!   server of the first table never recovers because of it. Set it well above what a busy server takes, and
//!   below a third of what the caller allows.
//! - **Layers.** Three layers of three attempts make 27 requests of one; five make 243. With
//!   [deadlines and ownership](crate::deadline#a-chain-of-services) it is 3. Change that before any number.
//!
//! # With your own numbers
//!
//! ```text
//! cargo run --release --example storm -- --config examples/storm/example.toml
//! ```
//!
//! The file describes clients, a server, an outage and a policy; the simulator says what becomes of them, and
//! of the default. It is a model: one queue, random arrivals, times exact to 1 ms. It tells rules apart; it
//! does not promise a number.
