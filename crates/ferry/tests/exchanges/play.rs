//! Makes the requests of an exchange and hands the answers to the comparison.

use std::future::Future;
use std::io::Read;
use std::pin::Pin;
use std::time::Duration;

use base64::Engine;
use ferry_testkit::data::Exchange;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::compare;
use crate::server::{PATIENCE, Server};
use crate::step::{Known, Step};
use crate::values;

/// How long a watch must stay silent after the last event that was recorded.
const SILENCE: Duration = Duration::from_millis(500);

/// Everything in which the server's answers differ from the recorded ones.
pub async fn play(server: &Server, exchange: Exchange) -> Vec<String> {
    let letters = (0..8).map(|_| char::from(rand::random_range(b'a'..=b'z'))).collect::<String>();
    // Begins as it did in the recordings, since lists over all namespaces are sorted by it.
    let mut known = Known { namespace: format!("oracle-{letters}"), answers: Default::default() };
    let played = play_in(server, exchange, &mut known).await;
    let place = format!("/api/v1/namespaces/{}", known.namespace);
    let removed = server.request("admin", "DELETE", &place, HeaderMap::new(), None).await;
    let mut differences = played.unwrap_or_else(|error| vec![error]);
    differences.extend(removed.err());
    differences
}

async fn play_in(server: &Server, exchange: Exchange, known: &mut Known) -> Result<Vec<String>, String> {
    for (place, body) in [
        ("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": known.namespace}})),
        // No controller makes it here, and pods need one.
        (
            &*format!("/api/v1/namespaces/{}/serviceaccounts", known.namespace),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
        ),
    ] {
        let body = Some(body.to_string().into_bytes());
        let answer = server.request("admin", "POST", place, HeaderMap::new(), body).await?;
        if answer.status() != 201 {
            return Err(format!("POST {place}: {}", answer.status()));
        }
    }
    let mut differences = Vec::new();
    for step in exchange.steps {
        let step: Step = serde_json::from_str(step.get()).map_err(|error| format!("a step cannot be read: {error}"))?;
        let answer = take(server, &step, known).await?;
        let place = format!("{} {} {}", step.id, step.method, step.path);
        match (&step.want, step.setup) {
            (None, true) if answer["code"].as_u64() >= Some(500) => {
                differences.push(format!("{place}: {} in a set-up step: {}", answer["code"], answer["body"]));
            }
            (None, true) => {}
            (Some(want), false) => {
                let found = compare::differences(&step, want, answer, &known.namespace);
                differences.extend(found.into_iter().map(|difference| format!("{place}: {difference}")));
            }
            _ => return Err(format!("{place}: either it has a recorded answer or it is set-up")),
        }
    }
    Ok(differences)
}

/// The answer as `code`, `type`, `body`, and where there are any, `warnings` and `headers`.
fn take<'a>(
    server: &'a Server,
    step: &'a Step,
    known: &'a mut Known,
) -> Pin<Box<dyn Future<Output = Result<Value, String>> + 'a>> {
    Box::pin(async move {
        let begin = tokio::time::Instant::now();
        loop {
            let answer = ask(server, step, known).await?;
            let there = step.until.iter().all(|(path, value)| values::get(&answer["body"], path) == Some(value));
            // Compared as it is when what is waited for never comes.
            if there || begin.elapsed() > PATIENCE {
                known.answers.insert(step.id.clone(), answer["body"].clone());
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

async fn ask(server: &Server, step: &Step, known: &mut Known) -> Result<Value, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &step.headers {
        let value = HeaderValue::try_from(known.fill(value)?).map_err(|error| error.to_string())?;
        headers.insert(HeaderName::try_from(name).map_err(|error| error.to_string())?, value);
    }
    let body = match (&step.raw64, &step.raw, &step.body) {
        (Some(bytes), _, _) => {
            Some(base64::engine::general_purpose::STANDARD.decode(bytes).map_err(|error| error.to_string())?)
        }
        (_, Some(text), _) => Some(known.fill(text)?.into_bytes()),
        (_, _, Some(value)) => Some(known.fill(value.get())?.into_bytes()),
        _ => None,
    };
    let answer = server.request(&step.user, &step.method, &known.fill(&step.path)?, headers, body).await?;
    let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut shown = json!({
        "code": answer.status().as_u16(),
        "type": header("content-type").unwrap_or_default().replace(' ', ""),
    });
    let mut warnings: Vec<&str> = answer.headers().get_all("warning").iter().flat_map(|w| w.to_str()).collect();
    if !warnings.is_empty() {
        warnings.sort();
        shown["warnings"] = json!(warnings);
    }
    if !step.header.is_empty() {
        shown["headers"] = step.header.iter().map(|name| (name.clone(), json!(header(name)))).collect();
    }
    shown["body"] = match step.collect {
        Some(most) if answer.status() == 200 => {
            for step in &step.during {
                take(server, step, known).await?;
            }
            events(answer, expected_events(step).unwrap_or(most), most).await?
        }
        _ => whole(answer, step).await?,
    };
    Ok(shown)
}

async fn whole(answer: Response<Incoming>, step: &Step) -> Result<Value, String> {
    let packed = answer.headers().get("content-encoding").is_some_and(|encoding| encoding == "gzip");
    let collected = tokio::time::timeout(PATIENCE, answer.into_body().collect()).await;
    let mut bytes = collected.map_err(|_| "the answer does not end")?.map_err(|error| error.to_string())?.to_bytes();
    if packed && !bytes.is_empty() {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut plain).map_err(|error| error.to_string())?;
        bytes = plain.into();
    }
    if let Some(length) = step.prefix {
        return Ok(bytes.iter().take(length).map(|byte| format!("{byte:02x}")).collect::<String>().into());
    }
    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
    Ok(match step.text {
        true => text(),
        false if bytes.is_empty() => Value::Null,
        false => serde_json::from_slice(&bytes).unwrap_or_else(|_| text()),
    })
}

/// How many events the recording has, as far as it tells.
fn expected_events(step: &Step) -> Option<usize> {
    let body = step.want.as_ref()?.get("body")?;
    if let Value::Array(events) = body {
        return Some(events.len());
    }
    // `only` picks values of some of them: `2.object.metadata.name` is one of the third.
    let numbers = body.as_object()?.iter().filter(|(_, value)| *value != "<absent>");
    numbers.filter_map(|(path, _)| path.split('.').next()?.parse::<usize>().ok()).map(|number| number + 1).max()
}

/// Waits for the expected events, and then a moment for more, which would be a difference.
async fn events(answer: Response<Incoming>, expected: usize, most: usize) -> Result<Value, String> {
    let mut body = answer.into_body();
    let (mut events, mut rest) = (Vec::new(), Vec::new());
    while events.len() < most {
        let patience = if events.len() < expected { PATIENCE } else { SILENCE };
        let frame = match tokio::time::timeout(patience, body.frame()).await {
            Ok(Some(frame)) => frame.map_err(|error| error.to_string())?,
            Ok(None) | Err(_) => break,
        };
        rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if !line.trim_ascii().is_empty() {
                events.push(serde_json::from_slice(&line).map_err(|error| format!("an event is no JSON: {error}"))?);
            }
        }
    }
    events.truncate(most);
    Ok(Value::Array(events))
}
