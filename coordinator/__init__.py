"""What Kafka's brokers and clients decide, as pure Python: no Spark, files, clock or threads."""
