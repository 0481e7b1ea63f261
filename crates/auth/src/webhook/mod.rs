//! Others who decide: token reviews and access reviews by webhook, remembered for a while.

mod access;
mod conditions;
mod tokens;

pub use access::{AccessWebhook, AccessWebhookOptions};
pub use conditions::{AccessConditions, ConditionsError};
pub use tokens::TokenWebhook;

use std::time::Duration;

use ferry_outbound::Remote;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Asks a review until it is answered; failures of the connection and 5xx are tried again, as upstream does.
async fn review(remote: &Remote, question: &Value, attempts: u32, patience: Duration) -> Result<Value, String> {
    let body = question.to_string();
    let mut pause = FIRST_PAUSE;
    let mut attempt = 1;
    loop {
        let why = match remote.post(body.clone(), patience).await {
            Ok(answer) if answer.is_success() => {
                let value: Value =
                    serde_json::from_slice(&answer.body).map_err(|error| format!("the answer is no JSON: {error}"))?;
                let (want, have) = (&question["kind"], &value["kind"]);
                return if want == have { Ok(value) } else { Err(format!("the answer is a {have}, not a {want}")) };
            }
            Ok(answer) if answer.code < 500 && answer.code != 429 => {
                return Err(format!("the webhook answered {}", answer.code));
            }
            Ok(answer) => format!("the webhook answered {}", answer.code),
            Err(error) => format!("Post \"{}\": {error}", remote.url()),
        };
        if attempt >= attempts.min(ATTEMPTS) {
            return Err(why);
        }
        attempt += 1;
        tokio::time::sleep(pause).await;
        pause = pause.mul_f64(1.5);
    }
}

#[cfg(test)]
mod tests;
