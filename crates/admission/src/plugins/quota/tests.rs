use super::*;
use crate::testing::{Case, Objects};

/// Quotas with revisions, so that a stale write is a conflict.
struct Store {
    objects: Arc<Objects>,
    quotas: Mutex<BTreeMap<String, Value>>,
    /// So many writes fail with a conflict first.
    conflicts: Mutex<usize>,
}

#[async_trait::async_trait]
impl QuotaStore for Store {
    async fn get(&self, _namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        let found = self.quotas.lock().get(name).cloned();
        // Lets others in between reading and writing, as a real store would.
        tokio::task::yield_now().await;
        Ok(found)
    }

    async fn update_status(&self, quota: &Value) -> Result<Value, ApiError> {
        let mut quotas = self.quotas.lock();
        let version = |quota: &Value| text(quota, "/metadata/resourceVersion").parse::<u64>().expect("a version");
        let stored = quotas.get_mut(name(quota)).expect("a quota");
        let mut conflicts = self.conflicts.lock();
        if version(stored) != version(quota) || *conflicts > 0 {
            *conflicts = conflicts.saturating_sub(1);
            return Err(ApiError::modified(&RESOURCE_QUOTAS, name(quota)));
        }
        *stored = quota.clone();
        stored["metadata"]["resourceVersion"] = json!((version(quota) + 1).to_string());
        self.objects.put("", "resourcequotas", stored.clone());
        Ok(stored.clone())
    }
}

fn cluster(quotas: &[Value], conflicts: usize) -> (Arc<Store>, ResourceQuota) {
    let objects = Arc::new(Objects::default());
    let mut all = BTreeMap::new();
    for quota in quotas {
        let mut quota = quota.clone();
        quota["metadata"]["namespace"] = json!("a");
        quota["metadata"]["resourceVersion"] = json!("1");
        objects.put("", "resourcequotas", quota.clone());
        all.insert(name(&quota).to_owned(), quota);
    }
    let store = Arc::new(Store { objects: objects.clone(), quotas: Mutex::new(all), conflicts: Mutex::new(conflicts) });
    (store.clone(), ResourceQuota::new(objects, store))
}

fn quota(name: &str, hard: Value, used: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
}

fn config_map(name: &str) -> Case {
    Case::create("", "configmaps", "a", json!({"metadata": {"name": name}}))
}

async fn refusal(plugin: &ResourceQuota, case: Case) -> Option<String> {
    let message = case.validate(plugin).await.err()?.0.message;
    Some(message.split_once(" is forbidden: ").map_or(message.clone(), |(_, why)| why.to_owned()))
}

#[tokio::test]
async fn the_last_slot_goes_to_one_writer() {
    let (store, plugin) = cluster(&[quota("q", json!({"configmaps": "2"}), json!({"configmaps": "1"}))], 0);
    let plugin = Arc::new(plugin);
    let names = ["a", "b", "c", "d"];
    let outcomes = futures::future::join_all(names.map(|name| refusal(&plugin, config_map(name)))).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_none()).count(), 1);
    assert_eq!(store.quotas.lock()["q"]["status"]["used"], json!({"configmaps": "2"}));
    let want = "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2";
    assert!(outcomes.iter().flatten().all(|why| why == want), "{outcomes:?}");
}

#[tokio::test]
async fn conflicts_are_tried_again_and_dry_runs_reserve_nothing() {
    let (store, plugin) = cluster(&[quota("q", json!({"count/configmaps": "5"}), json!({"count/configmaps": "0"}))], 3);
    assert_eq!(refusal(&plugin, config_map("a")).await, None);
    assert_eq!(store.quotas.lock()["q"]["status"]["used"], json!({"count/configmaps": "1"}));
    assert_eq!(refusal(&plugin, config_map("b").dry_run()).await, None);
    assert_eq!(store.quotas.lock()["q"]["status"]["used"], json!({"count/configmaps": "1"}));
}

#[tokio::test]
async fn a_quota_counts_once_its_status_is_known() {
    let none = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "0"}}});
    assert_eq!(refusal(&cluster(&[none], 0).1, config_map("a")).await, None);
    let hard = quota("q", json!({"configmaps": "2"}), json!({}));
    let want = "status unknown for quota: q, resources: configmaps";
    assert_eq!(refusal(&cluster(&[hard], 0).1, config_map("a")).await.as_deref(), Some(want));
}

#[tokio::test]
async fn compute_is_measured_and_must_be_given() {
    let hard = json!({"requests.cpu": "1", "limits.memory": "1Gi", "pods": "3"});
    let used = json!({"requests.cpu": "0", "limits.memory": "0", "pods": "0"});
    let mut best_effort = quota("be", json!({"pods": "0"}), json!({"pods": "0"}));
    best_effort["spec"]["scopes"] = json!(["BestEffort"]);
    let (store, plugin) = cluster(&[quota("q", hard, used), best_effort], 0);
    let pod = |resources: Value| {
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        Case::create("", "pods", "a", json!({"metadata": {"name": "p"}, "spec": spec}))
    };
    let check = async |resources: Value, want: Option<&str>| {
        assert_eq!(refusal(&plugin, pod(resources)).await.as_deref(), want);
    };
    check(json!({}), Some("failed quota: q: must specify limits.memory for: c; requests.cpu for: c")).await;
    check(json!({"requests": {"cpu": "100m"}}), Some("failed quota: q: must specify limits.memory for: c")).await;
    check(
        json!({"requests": {"cpu": "2"}, "limits": {"memory": "2Gi"}}),
        Some("exceeded quota: q, requested: limits.memory=2Gi,requests.cpu=2, used: limits.memory=0,requests.cpu=0, limited: limits.memory=1Gi,requests.cpu=1"),
    )
    .await;
    check(json!({"requests": {"cpu": "800m"}, "limits": {"memory": "100Mi"}}), None).await;
    assert_eq!(
        store.quotas.lock()["q"]["status"]["used"],
        json!({"limits.memory": "100Mi", "pods": "1", "requests.cpu": "800m"})
    );
    check(
        json!({"requests": {"cpu": "300m"}, "limits": {"memory": "100Mi"}}),
        Some("exceeded quota: q, requested: requests.cpu=300m, used: requests.cpu=800m, limited: requests.cpu=1"),
    )
    .await;
}

#[test]
fn priority_scopes_select_by_class() {
    let quota = |operator: &str, values: Value| {
        json!({"spec": {"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values}]}}})
    };
    let pod = |class: &str| json!({"spec": {"priorityClassName": class}});
    for (operator, values, class, want) in [
        ("In", json!(["high"]), "high", true),
        ("In", json!(["high"]), "low", false),
        ("NotIn", json!(["high"]), "low", true),
        ("Exists", json!([]), "low", true),
        ("Exists", json!([]), "", false),
        ("DoesNotExist", json!([]), "", true),
    ] {
        assert_eq!(scope::matches(&quota(operator, values), Measure::Pod, &pod(class)), want, "{operator} {class}");
    }
}

#[tokio::test]
async fn what_comes_into_the_scope_of_a_quota_is_charged_whole() {
    let scoped = |name: &str, scope: Value, hard: &str| {
        let mut quota = quota(
            name,
            json!({"pods": hard, "persistentvolumeclaims": hard}),
            json!({"pods": "0", "persistentvolumeclaims": "0"}),
        );
        quota["spec"]["scopeSelector"] = json!({"matchExpressions": [scope]});
        quota
    };
    let class = |class: &str| json!({"scopeName": "VolumeAttributesClass", "operator": "In", "values": [class]});
    let ending = json!({"scopeName": "Terminating", "operator": "Exists"});
    let (store, plugin) = cluster(
        &[scoped("ending", ending, "1"), scoped("gold", class("gold"), "1"), scoped("silver", class("silver"), "0")],
        0,
    );
    let used = |quota: &str, what: &str| store.quotas.lock()[quota]["status"]["used"][what].clone();

    let pod = |deadline: Value| json!({"metadata": {"name": "p", "resourceVersion": "1"}, "spec": {"activeDeadlineSeconds": deadline, "containers": [{"name": "c"}]}});
    let update = |subresource: &str, plural: &str, old: &Value, new: &Value| {
        Case::update("", plural, "a", new.clone(), old.clone()).at(subresource)
    };
    assert_eq!(refusal(&plugin, update("", "pods", &pod(json!(null)), &pod(json!(5)))).await, None);
    assert_eq!(used("ending", "pods"), "1");
    let want = "exceeded quota: ending, requested: pods=1, used: pods=1, limited: pods=1";
    assert_eq!(refusal(&plugin, update("", "pods", &pod(json!(null)), &pod(json!(5)))).await.as_deref(), Some(want));
    assert_eq!(
        refusal(&plugin, update("", "pods", &pod(json!(5)), &pod(json!(4)))).await,
        None,
        "it was in the scope before"
    );

    let claim = |asked: &str, has: &str| json!({"metadata": {"name": "c", "resourceVersion": "1"}, "spec": {"volumeAttributesClassName": asked}, "status": {"currentVolumeAttributesClassName": has}});
    let plural = "persistentvolumeclaims";
    assert_eq!(refusal(&plugin, update("status", plural, &claim("", ""), &claim("", "gold"))).await, None);
    assert_eq!(used("gold", plural), "1");
    let want = "exceeded quota: silver, requested: persistentvolumeclaims=1, used: persistentvolumeclaims=0, limited: persistentvolumeclaims=0";
    assert_eq!(
        refusal(&plugin, update("", plural, &claim("gold", "gold"), &claim("silver", "gold"))).await.as_deref(),
        Some(want)
    );
}
