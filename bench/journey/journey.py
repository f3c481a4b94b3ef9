"""The journey of journey.js, for Locust."""

from locust import HttpUser, task


class Shopper(HttpUser):
    @task
    def shop(self):
        client = self.client
        login = client.post("/login", json={"user": "ann", "password": "secret"})
        headers = {"Authorization": "Bearer " + login.json()["access_token"]}
        item = client.get("/items", headers=headers).json()["items"][0]["id"]
        client.get(f"/items/{item}", headers=headers)
        order = client.post("/orders", headers=headers, json={"item": item, "count": 1})
        number = order.json()["order"]["id"]
        client.get(f"/orders/{number}", headers=headers)
