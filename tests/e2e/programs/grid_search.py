"""A grid search over both clusters, and the same one here."""

import os

import joblib
from common import CONFIG, answer
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import ray_multicluster_scheduler.joblib  # noqa: F401 - registers the backend
from ray_multicluster_scheduler import initialize_scheduler_environment


def found(n_jobs):
    search = GridSearchCV(
        SVC(), {"C": [0.1, 1, 10], "kernel": ["rbf", "linear"], "gamma": [0.1, 1]}, n_jobs=n_jobs
    )
    search.fit(*load_iris(return_X_y=True))
    return search.best_params_, search.best_score_, search.cv_results_["mean_test_score"].tolist()


scheduler = initialize_scheduler_environment(CONFIG)
with joblib.parallel_config("raymc"):
    slots = joblib.effective_n_jobs()
    everywhere = found(None)
    where = joblib.Parallel(batch_size=1)(
        joblib.delayed(os.environ.get)("RAY_MULTICLUSTER_CLUSTER") for _ in range(40)
    )
scheduler.stop()
answer({"slots": slots, "equal": everywhere == found(1), "where": sorted({str(each) for each in where})})
