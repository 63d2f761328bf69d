"""A grid search of scikit-learn with its workers on all clusters. Only the line with `with` is new."""

import joblib
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import ray_multicluster_scheduler.joblib  # noqa: F401 - registers "raymc"

numbers, labels = load_digits(return_X_y=True)
search = GridSearchCV(SVC(), {"C": [0.1, 1, 10], "gamma": [0.0001, 0.001, 0.01]}, cv=3, n_jobs=-1)

with joblib.parallel_config("raymc"):
    search.fit(numbers, labels)

print(f"best: {search.best_params_}, right in {search.best_score_:.1%} of all cases")
