//! Where metrics come from: `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`, through the API.

use std::time::Duration;

use ferry_client::{Clock, write};
use ferry_meta::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, LabelSelector, LabelSelectorRequirement, Time};
use kube::Client;
use serde::Deserialize;

use super::replicas::{Sample, Samples};

const CUSTOM: &str = "custom.metrics.k8s.io";
const FROM_CUSTOM: &str = "unable to fetch metrics from custom metrics API";

#[derive(Clone)]
pub(super) struct Source {
    pub(super) client: Client,
    pub(super) clock: Clock,
}

#[derive(Deserialize)]
struct List<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct PodMetrics {
    metadata: Named,
    timestamp: Option<Time>,
    window: Option<String>,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default)]
    usage: std::collections::BTreeMap<String, Amount>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomValue {
    described_object: Named,
    timestamp: Option<Time>,
    /// `window` in v1beta1.
    #[serde(alias = "window")]
    window_seconds: Option<i64>,
    value: Amount,
}

#[derive(Deserialize)]
struct ExternalValue {
    value: Amount,
}

fn milli(amount: &Amount) -> i64 {
    Quantity::parse(&amount.0).map(|quantity| quantity.milli_value()).unwrap_or_default()
}

/// A selector as the query of a URL has it.
pub(super) fn selector_text(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return String::new() };
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let other = selector.match_expressions.iter().flatten().map(expression);
    equal.chain(other).collect::<Vec<_>>().join(",")
}

fn expression(requirement: &LabelSelectorRequirement) -> String {
    let values = requirement.values.clone().unwrap_or_default().join(",");
    match requirement.operator.as_str() {
        "In" => format!("{} in ({values})", requirement.key),
        "NotIn" => format!("{} notin ({values})", requirement.key),
        "DoesNotExist" => format!("!{}", requirement.key),
        _ => requirement.key.clone(),
    }
}

/// A selector as reasons and messages show it.
pub(super) fn selector_shown(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".into() };
    let labels: String =
        selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},")).collect();
    let shown = |one: &LabelSelectorRequirement| {
        let values = one.values.clone().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    };
    let expressions: String = selector.match_expressions.iter().flatten().map(shown).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

impl Source {
    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, kube::Error> {
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// From the custom metrics API, in the newest version that is there.
    async fn custom(&self, path: &str) -> Result<Vec<CustomValue>, String> {
        let ask = async |version: &str| {
            let path = format!("/apis/{CUSTOM}/{version}/{path}");
            self.get::<List<CustomValue>>(&path).await.map(|list| list.items)
        };
        let answer = match ask("v1beta2").await {
            Err(error) if write::is_not_found(&error) => match self.custom_versions().await {
                Some(known) if known.iter().any(|version| version == "v1beta2") => Err(error),
                Some(known) if known.iter().any(|version| version == "v1beta1") => ask("v1beta1").await,
                _ => return Err(format!("{FROM_CUSTOM}: no custom metrics API ({CUSTOM}) registered")),
            },
            other => other,
        };
        answer.map_err(|error| format!("{FROM_CUSTOM}: {}", write::short(&error)))
    }

    /// None where nobody serves the group.
    async fn custom_versions(&self) -> Option<Vec<String>> {
        let group: APIGroup = self.get(&format!("/apis/{CUSTOM}")).await.ok()?;
        Some(group.versions.into_iter().map(|known| known.version).collect())
    }

    /// By pod: what it, or one container of it, uses of a resource.
    pub(super) async fn resource(
        &self,
        namespace: &str,
        selector: &str,
        resource: &str,
        container: Option<&str>,
    ) -> Result<Samples, String> {
        let path =
            format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={}", escape(selector));
        let list: List<PodMetrics> = self
            .get(&path)
            .await
            .map_err(|error| format!("unable to fetch metrics from resource metrics API: {}", write::short(&error)))?;
        if list.items.is_empty() {
            return Err("no metrics returned from resource metrics API".into());
        }
        let sample = |metrics: PodMetrics| {
            let mut sum = 0_i64;
            let mut found = false;
            for part in metrics.containers.iter().filter(|part| container.is_none_or(|name| part.name == name)) {
                // A pod one of whose containers has no figure has none itself.
                sum = sum.saturating_add(milli(part.usage.get(resource)?));
                found = true;
            }
            let window = metrics.window.as_deref().and_then(seconds).unwrap_or(Duration::from_secs(60));
            let at = metrics.timestamp.map_or_else(|| self.clock.now(), |time| time.0);
            found.then_some((metrics.metadata.name, Sample { milli: sum, at, window }))
        };
        Ok(list.items.into_iter().filter_map(sample).collect())
    }

    /// By pod: a metric that something else measures of it.
    pub(super) async fn of_pods(
        &self,
        namespace: &str,
        selector: &str,
        metric: &str,
        metric_selector: &str,
    ) -> Result<Samples, String> {
        let path = format!(
            "namespaces/{namespace}/pods/*/{}?labelSelector={}&metricLabelSelector={}",
            escape(metric),
            escape(selector),
            escape(metric_selector)
        );
        let values = self.custom(&path).await?;
        if values.is_empty() {
            return Err("no metrics returned from custom metrics API".into());
        }
        let sample = |value: CustomValue| {
            let window = Duration::from_secs(u64::try_from(value.window_seconds.unwrap_or(60)).unwrap_or(60));
            let at = value.timestamp.map_or_else(|| self.clock.now(), |time| time.0);
            (value.described_object.name, Sample { milli: milli(&value.value), at, window })
        };
        Ok(values.into_iter().map(sample).collect())
    }

    /// One object's metric in thousandths. `resource` is `plural.group` as the API has it; of namespaces it is always the
    /// autoscaler's own.
    pub(super) async fn of_object(
        &self,
        namespace: &str,
        resource: &str,
        name: &str,
        metric: &str,
        metric_selector: &str,
    ) -> Result<i64, String> {
        let place = if resource == "namespaces" { "metrics".to_owned() } else { format!("{resource}/{name}") };
        let path = format!(
            "namespaces/{namespace}/{place}/{}?metricLabelSelector={}",
            escape(metric),
            escape(metric_selector)
        );
        match self.custom(&path).await?.as_slice() {
            [value] => Ok(milli(&value.value)),
            values => Err(format!(
                "{FROM_CUSTOM}: the custom metrics API server returned {} results when we asked for exactly one",
                values.len()
            )),
        }
    }

    /// The sum of what something outside the cluster shows, in thousandths.
    pub(super) async fn external(&self, namespace: &str, metric: &str, selector: &str) -> Result<i64, String> {
        let path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{}?labelSelector={}",
            escape(metric),
            escape(selector)
        );
        let list: List<ExternalValue> = self
            .get(&path)
            .await
            .map_err(|error| format!("unable to fetch metrics from external metrics API: {}", write::short(&error)))?;
        if list.items.is_empty() {
            return Err("no metrics returned from external metrics API".into());
        }
        Ok(list.items.iter().map(|value| milli(&value.value)).fold(0, i64::saturating_add))
    }
}

/// `30s`, `1m0s`, `20.5s`: whole seconds are enough here.
fn seconds(text: &str) -> Option<Duration> {
    let (minutes, rest) = text.split_once('m').unwrap_or(("0", text));
    let (minutes, rest): (f64, f64) = (minutes.parse().ok()?, rest.trim_end_matches('s').parse().ok()?);
    Duration::try_from_secs_f64(minutes * 60.0 + rest).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn queries_are_written_as_the_api_reads_them() {
        let selector: LabelSelector = serde_json::from_value(json!({
            "matchLabels": { "a": "b" }, "matchExpressions": [{ "key": "k", "operator": "In", "values": ["x", "y"] }, { "key": "z", "operator": "DoesNotExist" }],
        }))
        .expect("a selector");
        assert_eq!(selector_text(Some(&selector)), "a=b,k in (x,y),!z");
        assert_eq!(
            selector_shown(Some(&selector)),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{\
            LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},LabelSelectorRequirement{Key:z,Operator:DoesNotExist,Values:[],},},}"
        );
        assert_eq!((selector_text(None), selector_shown(None)), (String::new(), "nil".to_owned()));
        assert_eq!(escape("k in (x)/é"), "k%20in%20%28x%29%2F%C3%A9");
        assert_eq!(
            ["30s", "1m0s", "1m30.5s"].map(|text| seconds(text).map(|d| d.as_millis())),
            [Some(30_000), Some(60_000), Some(90_500)]
        );
        assert_eq!(seconds("soon"), None);
    }
}
